#!/usr/bin/env python3
"""Trains the planner's plan on test hosts of little memory, beside the best single strategies of this program and all
static strategies of a peer program, as Markdown.

    bench/plans_on_hosts.py --cluster TOOL [--peer PROGRAM --peer-name NAME] [--program build/switchyard]
                            [--data data/definitions] [--memory 72] [--inter 400mbit] [--intra 2gbit] [--cores 0.2]
                            [--hosts 2] [--slots 4] [--tokens 49152] [--rounds 1] [--steps 3] [--profile FILE]
                            [--lengths commoncrawl] [--peer-dp N ...] [--out FOLDER]

TOOL makes hosts with slow links, as for bench/demo_on_hosts.py; every rank has a fixed share of a core. The job is
demo/cluster.toml on DATA, or on its tokens in documents of lengths drawn from a model of tools/lengths.py, with
--tokens tokens a step and a budget of --memory MiB a rank, planned with a quick profile of the hosts, or FILE. The
plan, the best single strategy with balanced documents, and the usual default (the same split, documents in the data's
order) train in turns. PROGRAM is called as by bench/peer_on_hosts.py, with each split of the ranks into data, tensor
and pipeline parallel ones and Ulysses' that the model allows, first for one step: with recomputation, too, where it
takes more memory without it. Its quickest within the budget of that step, and its quickest without one, then take their
turns; --peer-dp leaves out splits with other numbers of replicas. Rates are those of all steps but the first. Writes
plans_on_hosts.md to --out. Exit status 1: losses differ.
"""

import argparse
import os
import random
import re
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy
from demo_on_hosts import add_hosts, hosts_of, profiled, write_page
from emulated_gains import strategies_of
from emulated_steps import HEAD_DIM, demo_job
from machine_jobs import ROOT, IndexedWriter
from peer_on_hosts import check, ours, peers

sys.path.insert(0, str(ROOT / "tools"))
import demo  # noqa: E402  for its contenders
import lengths  # noqa: E402

DOCUMENTS = 4096  # number of drawn lengths

SCREENED = ("| peer's strategy | tokens/s of the first step | MiB a rank | within the budget |\n"
            "|---|---|---|---|\n")
TURNS = ("| | strategy | tokens/s, each round | the plan's tokens/s to it, each round | MiB a rank |\n"
         "|---|---|---|---|---|\n")


def splits(model, ranks, replicas):
    """The peer's options for each way to split the ranks. replicas: numbers of them; empty: all."""
    heads = model["kv_heads"]
    for pp in range(1, model["layers"] + 1):
        for tp in range(1, heads + 1):
            for cp in range(1, heads // tp + 1):
                if heads % (tp * cp) or ranks % (tp * pp * cp):
                    continue
                dp = ranks // (tp * pp * cp)
                if replicas and dp not in replicas:
                    continue
                for zero in (0, 3) if dp > 1 and pp == 1 else (0,):
                    yield f"--strategy {dp},{tp},{pp},{cp} --zero {zero}"


def drawn_corpus(folder, data, model):
    """A corpus of DATA's tokens, one after the other, in documents of the model's lengths; of 16-bit tokens."""
    tokens = numpy.fromfile(Path(data) / "corpus.bin", dtype="<u2")
    bins = lengths.histogram(lengths.MODELS[model])
    draw = random.Random(1)
    folder.mkdir()
    writer, first = IndexedWriter(folder, 8192), 0
    for lo, hi, _ in draw.choices(bins, weights=[count for *_, count in bins], k=DOCUMENTS):
        length = min(hi - 1, int(lo * (hi / lo) ** draw.random()))  # evenly by the logarithm
        if first + length > len(tokens):
            first = 0
        writer.add(tokens[first:first + length])
        first += length
    writer.finish()
    return folder


def job_of(arguments, path):
    text = demo_job(arguments.hosts * arguments.slots, arguments.data)
    text = re.sub("^tokens = .*", f"tokens = {arguments.tokens}", text, flags=re.M)
    path.write_text(text.replace("[run]", f'[run]\nmemory_budget = "{arguments.memory} MiB"'))
    return path


def screened(launcher, path, arguments):
    """[(rate, options, peak in MiB)] of the peer's strategies, and the lines of their table."""
    found, text = [], ""
    model = tomllib.loads(path.read_text())["model"]
    for split in splits(model, arguments.hosts * arguments.slots, arguments.peer_dp):
        for options in (split, f"{split} --recompute"):
            rate, _, peak = peers(launcher, path, arguments, options, steps=1)
            found.append((rate, options, peak))
            fits = peak <= arguments.memory
            text += f"| `{options}` | {rate:.0f} | {peak:.0f} | {'yes' if fits else 'no'} |\n"
            print(text.splitlines()[-1], flush=True)
            if fits:
                break
    return found, text


def turns(launcher, path, arguments, contenders, chosen):
    """A line for each contender and each of the peer's chosen strategies."""
    ranks = arguments.hosts * arguments.slots
    rates, peaks = {}, {}

    def note(name, rate, peak):
        rates.setdefault(name, []).append(rate)
        peaks[name] = max(peak, peaks.get(name, 0))

    for _ in range(arguments.rounds):
        steps_of = {}
        for one in contenders:
            rate, steps_of[one.title], peak = ours(arguments.program, launcher, one.job, arguments, ranks)
            note(one.title, rate, peak)
        for title, options in chosen.items():
            rate, steps, peak = peers(launcher, path, arguments, options)
            note(title, rate, peak)
            for mine in contenders:
                check(mine.title, options, steps_of[mine.title], steps)
    plan = rates[contenders[0].title]
    names = {one.title: strategies_of(one.job) for one in contenders} | {
        title: f"`{options}`" for title, options in chosen.items()}
    for title, name in names.items():
        each = ", ".join(f"{rate:.0f}" for rate in rates[title])
        ratios = ", ".join(f"{mine / theirs:.2f}" for mine, theirs in zip(plan, rates[title]))
        yield f"| {title} | {name} | {each} | {ratios} | {peaks[title]:.0f} |\n"


def chosen_of(found, memory, name):
    """Title -> options: the quickest of all, and the quickest within the budget in the step that was tried."""
    if not found:
        return {}
    chosen = {}
    within = [one for one in found if one[2] <= memory]
    if within:
        chosen[f"{name}, within the budget in its first step"] = max(within)[1]
    if not within or max(found)[1] != max(within)[1]:
        chosen[f"{name}, with any memory"] = max(found)[1]
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_hosts(parser, cores="0.2", slots=4)
    parser.set_defaults(data=str(ROOT / "data/definitions"))
    parser.add_argument("--peer", type=os.path.abspath)
    parser.add_argument("--peer-name", default="the peer", help="what the peer is, for the page")
    parser.add_argument("--peer-dp", type=int, nargs="+", default=[], metavar="N")
    parser.add_argument("--memory", type=int, default=72, metavar="MIB", help="budget of a rank")
    parser.add_argument("--profile", type=Path, help="of the hosts, instead of a fresh one")
    parser.add_argument("--lengths", choices=sorted(lengths.MODELS), help="of the documents, instead of DATA's")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=49152, help="of a step")
    arguments = parser.parse_args()
    with hosts_of(arguments) as launcher, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.lengths:
            arguments.data = str(drawn_corpus(folder / "corpus", arguments.data, arguments.lengths))
        path = job_of(arguments, folder / "job.toml")
        profile, text = arguments.profile, ""
        if not profile:
            profile, text = profiled(arguments.program, launcher, folder, "--quick", "--head-dim", HEAD_DIM)
        contenders = demo.contenders(arguments.program, path, profile, folder, arguments.steps)
        found, lines = screened(launcher, path, arguments) if arguments.peer else ([], "")
        text += TURNS
        print(TURNS, end="", flush=True)
        for line in turns(launcher, path, arguments, contenders,
                          chosen_of(found, arguments.memory, arguments.peer_name)):
            print(line, end="", flush=True)
            text += line
        if found:
            replicas = f" with {' or '.join(map(str, arguments.peer_dp))} replicas" if arguments.peer_dp else ""
            text += f"\nAll strategies of {arguments.peer_name}{replicas}, one step each:\n\n{SCREENED}{lines}"
    write_page("plans_on_hosts", "Plans on test hosts of little memory", text, arguments,
               ["inter", "intra", "cores", "hosts", "slots", "memory", "rounds", "steps", "tokens",
                *(["lengths"] if arguments.lengths else [])])


if __name__ == "__main__":
    main()
