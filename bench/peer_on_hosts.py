#!/usr/bin/env python3
"""Trains the demo's job on test hosts beside a peer program, strategy by strategy in turns, as Markdown.

    bench/peer_on_hosts.py --cluster TOOL --peer PROGRAM --peer-name NAME [--program build/switchyard]
                           [--data data/python] [--inter 400mbit] [--intra 2gbit] [--cores 0.45] [--hosts 2]
                           [--slots 2] [--rounds 2] [--steps 4] [--tokens 16384] [--only WORD ...] [--out FOLDER]

TOOL, DATA and the job are those of bench/demo_on_hosts.py, with --tokens tokens a step. PROGRAM trains on the same
documents (--job, --data, --steps, and the options of the table) and prints a line of JSON with the seconds, tokens and
losses of its steps. A run's rate is that of all its steps but the first, which touches fresh memory; each round gives
a ratio.
The tokens of each step must agree, and losses be near: the first weights differ. Writes peer_on_hosts.md to --out.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from demo_on_hosts import STRATEGIES, add_hosts, hosts_of, write_job, write_page
from machine_jobs import call, seconds_of

# A way to split, this program's strategies that split so, and the peer's options for it. Of each the quickest counts.
PAIRS = [("1,2,2", ["1,2,2", "tp=2,pp=2,schedule=interleaved,recompute=none",
                    "tp=2,pp=2,schedule=interleaved,recompute=none,paired=true",
                    "tp=2,pp=2,schedule=zb-v,recompute=none"], ["--strategy 1,2,2"]),
         ("2,2,1", ["2,2,1", "dp=2,tp=2,recompute=none", "dp=2,tp=2,recompute=none,paired=true"],
          ["--strategy 2,2,1 --zero 0", "--strategy 2,2,1 --zero 1"]),
         ("2,1,2", ["2,1,2", "dp=2,pp=2,schedule=interleaved"],
          ["--strategy 2,1,2 --zero 0", "--strategy 2,1,2 --zero 1"]),
         ("dp=2,ulysses=2", ["dp=2,ulysses=2", "dp=2,ulysses=2,paired=true"],
          ["--strategy 2,1,1,2 --zero 0", "--strategy 2,1,1,2 --zero 1"]),
         ("dp=4,zero=3", ["dp=4,zero=3"], ["--strategy 4,1,1 --zero 3", "--strategy 4,1,1 --zero 3 --hsdp 2"]),
         (STRATEGIES[0], [STRATEGIES[0]], [])]
CLOSE = 0.02  # relative difference of losses from other first weights, after a few steps
HEAD = ("| split | strategy | tokens/s | peer | tokens/s | ratio, each round | MiB a rank, ours, peer's |\n"
        "|---|---|---|---|---|---|---|\n")


def rate(tokens, seconds):
    """Tokens a second of all steps but the first, unless there are no others."""
    first = min(1, len(tokens) - 1)
    return sum(tokens[first:]) / sum(seconds[first:])


def ours(program, launcher, path, arguments, ranks):
    """Tokens a second, tokens and loss of each step, and the highest peak of a rank in MiB."""
    out = path.parent / "run"
    call(*launcher, program, "train", path, "--steps", arguments.steps, "--out", out, "--force",
         "--set=run.save_last=false", "--set", f"run.ranks={ranks}", "--set", f"batch.tokens={arguments.tokens}")
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    tokens = [entry["tokens"] for entry in log]
    return (rate(tokens, seconds_of(log)), list(zip(tokens, (entry["loss"] for entry in log))),
            max(max(entry["peak_bytes_per_rank"]) for entry in log) / 2**20)


def peers(launcher, path, arguments, options, steps=None):
    said = call(*launcher, sys.executable, arguments.peer, "--job", path, "--data", arguments.data, "--steps",
                steps or arguments.steps, "--batch-tokens", arguments.tokens, *options.split())
    line = json.loads(said.strip().splitlines()[-1])
    peak = max(most - before for most, before in zip(line["peak_rss_mib"], line["start_rss_mib"]))
    return rate(line["tokens"], line["seconds"]), list(zip(line["tokens"], line["losses"])), peak


def check(strategy, options, mine, theirs):
    for step, ((tokens, loss), (their_tokens, their_loss)) in enumerate(zip(mine, theirs, strict=True), 1):
        if tokens != their_tokens or abs(loss - their_loss) > CLOSE * loss:
            sys.exit(f"peer_on_hosts: {strategy} and {options} train on different documents or another model: step "
                     f"{step} has {tokens} tokens, loss {loss:.4f}, and {their_tokens}, loss {their_loss:.4f}")


def row(launcher, split, paths, candidates, arguments, ranks):
    """paths: of jobs by strategy."""
    rounds, rates = [], []
    for _ in range(arguments.rounds):
        own, steps_of, results = [], {}, []
        for strategy, path in paths.items():
            rate_of_run, steps_of[strategy], peak = ours(arguments.program, launcher, path, arguments, ranks)
            own.append((rate_of_run, strategy, peak))
        for options in candidates:
            theirs, their_steps, their_peak = peers(launcher, path, arguments, options)
            for strategy, steps in steps_of.items():
                check(strategy, options, steps, their_steps)
            results.append((theirs, options, their_peak))
        rates.append(max(own))
        if results:
            rounds.append((max(own)[0] / max(results)[0], *max(own), *max(results)))
    if not candidates:
        mine, strategy, peak = sorted(rates)[len(rates) // 2]
        return f"| {split} | `{strategy}` | {mine:.0f} | | | | {peak:.0f} |\n"
    _, mine, strategy, peak, theirs, options, their_peak = sorted(rounds)[len(rounds) // 2]
    each = ", ".join(f"{found[0]:.2f}" for found in rounds)
    return (f"| {split} | `{strategy}` | {mine:.0f} | `{options}` | {theirs:.0f} | {each} | "
            f"{peak:.0f}, {their_peak:.0f} |\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_hosts(parser, cores="0.45")
    parser.add_argument("--peer", required=True, type=os.path.abspath)
    parser.add_argument("--peer-name", required=True, help="what the peer is, for the page")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16384, help="of a step")
    parser.add_argument("--only", nargs="+", default=[], help="only these ways to split")
    arguments = parser.parse_args()
    ranks = arguments.hosts * arguments.slots
    text = HEAD
    with hosts_of(arguments) as launcher, tempfile.TemporaryDirectory() as folder:
        print(text, end="", flush=True)
        for split, strategies, candidates in PAIRS:
            if arguments.only and split not in arguments.only:
                continue
            paths = {strategy: write_job(Path(folder) / strategy.replace(" ", "-"), strategy, arguments.data)
                     for strategy in strategies}
            line = row(launcher, split, paths, candidates, arguments, ranks)
            print(line, end="", flush=True)
            text += line
    write_page("peer_on_hosts", f"The demo's job on test hosts beside {arguments.peer_name}", text, arguments,
               ["inter", "intra", "cores", "hosts", "slots", "rounds", "steps", "tokens"])


if __name__ == "__main__":
    main()
