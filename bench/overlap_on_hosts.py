#!/usr/bin/env python3
"""Measures what `run.overlap` and `run.overlap_transfers` gain on two test hosts with slow links, beside what is
simulated, as Markdown.

    bench/overlap_on_hosts.py --cluster TOOL [--program build/switchyard] [--data data/python] [--inter 400mbit]
                              [--intra 2gbit] [--cores 0.45] [--hosts 2] [--slots 1] [--rounds 3] [--steps 4]
                              [--tokens 4096] [--strategy S ...] [--out FOLDER]

TOOL, DATA and the job are those of bench/demo_on_hosts.py, with --tokens tokens a step; a host has --slots ranks. The
hosts are profiled over TCP.
Each strategy trains with and without overlap in turns, so many rounds; a run's time is that of its median step, without
the first, which touches fresh memory, and a row has the median of the rounds. hidden: with overlap, of the time in
which ranks transfer data, the share in which they compute, too. error: of the simulated median step of the same steps.
Writes overlap_on_hosts.md to --out.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

from demo_on_hosts import add_hosts, hosts_of, profiled, write_job, write_page
from machine_jobs import call, seconds_of

STRATEGIES = ["tp=2", "depth=2", "ulysses=2", "dp=2,zero=3"]
HEAD = ("| strategy | with overlap, s per step | simulated, error | without | simulated, error | with / without, each "
        "round | simulated | hidden | simulated |\n"
        "|---|---|---|---|---|---|---|---|---|\n")


def settings(overlap, ranks, tokens):
    keys = {"run.overlap": json.dumps(overlap), "run.overlap_transfers": json.dumps(overlap), "run.ranks": ranks,
            "batch.tokens": tokens}
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def measure(program, launcher, path, overlap, ranks, tokens, steps):
    """Seconds of the median step, and the mean share of communication that is hidden."""
    out = path.parent / "run"
    call(*launcher, program, "train", path, "--steps", steps, "--out", out, "--force", "--set=run.save_last=false",
         *settings(overlap, ranks, tokens))
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return median(seconds_of(log)[1:]), sum(line["hidden_share"] for line in log) / len(log)


def simulate(program, path, profile, overlap, ranks, tokens, steps):
    """Seconds of the median step, and the share of communication that is hidden."""
    said = call(program, "simulate", path, "--cluster", profile, "--steps", steps, "--json",
                *settings(overlap, ranks, tokens))
    said = json.loads(said.splitlines()[-1])
    return median(said["seconds_of_steps"][1:]), said["overlap_seconds"] / said["communication_seconds"]


def row(program, launcher, path, profile, strategy, ranks, arguments):
    rounds, of_run = arguments.rounds, (ranks, arguments.tokens, arguments.steps)
    found = [[measure(program, launcher, path, overlap, *of_run) for overlap in (True, False)]
             for _ in range(rounds)]
    ratios = ", ".join(f"{on[0] / off[0]:.3f}" for on, off in found)
    seconds = [median([pair[i][0] for pair in found]) for i in range(2)]
    simulated = [simulate(program, path, profile, overlap, *of_run) for overlap in (True, False)]
    columns = " | ".join(f"{of:.2f} | {said:.2f}, {100 * (said / of - 1):+.1f}%"
                         for of, (said, _) in zip(seconds, simulated))
    (with_overlap, hidden), (without, _) = simulated
    measured = median([on[1] for on, _ in found])
    return (f"| {strategy} | {columns} | {ratios} | {with_overlap / without:.3f} | {100 * measured:.0f}% | "
            f"{100 * hidden:.0f}% |\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_hosts(parser, cores="0.45", slots=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=4096, help="of a step")
    parser.add_argument("--strategy", nargs="+", default=STRATEGIES)
    arguments = parser.parse_args()
    with hosts_of(arguments) as launcher, tempfile.TemporaryDirectory() as folder:
        profile, links = profiled(arguments.program, launcher, Path(folder))
        text = links + HEAD
        print(text, end="", flush=True)
        for strategy in arguments.strategy:
            path = write_job(Path(folder) / strategy, strategy, arguments.data)
            line = row(arguments.program, launcher, path, profile, strategy, arguments.hosts * arguments.slots,
                       arguments)
            print(line, end="", flush=True)
            text += line
    write_page("overlap_on_hosts", "Collectives beside products on two test hosts", text, arguments,
               ["inter", "intra", "cores", "slots", "rounds", "steps", "tokens"])


if __name__ == "__main__":
    main()
