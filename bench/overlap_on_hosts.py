#!/usr/bin/env python3
"""Measures what `run.overlap` gains on two test hosts with slow links, as Markdown.

    bench/overlap_on_hosts.py --cluster TOOL [--program build/switchyard] [--data data/python] [--inter 400mbit]
                              [--intra 2gbit] [--cores 0.3] [--rounds 3] [--steps 4] [--out FOLDER]

TOOL, DATA and the job are those of bench/demo_on_hosts.py. Each strategy trains with and without overlap in turns, so
many rounds; a run's time is that of its median step, without the first, which touches fresh memory. hidden: the log's
hidden_share, of the communication within runs (-: there is none). Writes overlap_on_hosts.md to --out.
"""

import argparse
import datetime
import json
import os
import tempfile
from pathlib import Path

from demo_on_hosts import add_hosts, hosts_of, write_job
from machine_jobs import ROOT, call, median, seconds_of

STRATEGIES = ["1,4,1", "2,2,1", "1,2,2"]
HEAD = ("| strategy | with overlap, s per step | without | with / without, each round | hidden |\n"
        "|---|---|---|---|---|\n")


def measure(program, launcher, path, out, overlap, steps):
    """Seconds of the median step, and the mean share of communication that is hidden, if there is any."""
    call(*launcher, program, "train", path, "--steps", steps, "--out", out, "--force",
         "--set=run.save_last=false", "--set", f"run.overlap={json.dumps(overlap)}")
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    shares = [line["hidden_share"] for line in log if "hidden_share" in line]
    return median(seconds_of(log)[1:]), sum(shares) / len(shares) if shares else None


def row(program, launcher, path, strategy, rounds, steps):
    found = [[measure(program, launcher, path, path.parent / f"{overlap}-{n}", overlap, steps)
              for overlap in (True, False)] for n in range(rounds)]
    ratios = ", ".join(f"{on[0] / off[0]:.3f}" for on, off in found)
    seconds = [median([pair[i][0] for pair in found]) for i in range(2)]
    shares = [on[1] for on, _ in found if on[1] is not None]
    hidden = f"{100 * median(shares):.0f}%" if shares else "-"
    return f"| {strategy} | {seconds[0]:.2f} | {seconds[1]:.2f} | {ratios} | {hidden} |\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_hosts(parser, cores="0.3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--strategy", nargs="+", default=STRATEGIES)
    arguments = parser.parse_args()
    text = HEAD
    print(text, end="", flush=True)
    with hosts_of(arguments) as launcher, tempfile.TemporaryDirectory() as folder:
        for strategy in arguments.strategy:
            path = write_job(Path(folder) / strategy, strategy, arguments.data)
            line = row(arguments.program, launcher, path, strategy, arguments.rounds, arguments.steps)
            print(line, end="", flush=True)
            text += line
    words = (f"bench/overlap_on_hosts.py --cluster TOOL --inter {arguments.inter} --intra {arguments.intra} "
             f"--cores {arguments.cores} --rounds {arguments.rounds} --steps {arguments.steps}")
    when = f"Command: `{words}`, {datetime.date.today().isoformat()}, {os.cpu_count()} cores."
    (arguments.out / "overlap_on_hosts.md").write_text(
        f"# Collectives beside products on two test hosts\n\n{when}\n\n{text}")


if __name__ == "__main__":
    main()
