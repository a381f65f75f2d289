#!/usr/bin/env python3
"""Compares steps on emulated clusters with `switchyard simulate`, and with the same jobs on test hosts, as Markdown.

    bench/emulated_steps.py [--program build/switchyard] [--data data/definitions] [--cluster TOOL] [--steps 4]
                            [--only WORD ...] [--out FOLDER]

The jobs are demo/cluster.toml under several strategies, on 4, 8 and 32 emulated devices with more memory than they
need. With TOOL, which makes hosts with slow links (up, launch, down as for demo_on_hosts.py), jobs of 4 and 8 ranks
also run there: each rank has a fixed share of a core, and links as much slower than the emulated ones, so that emulated
steps divided by this share should be those on the hosts. The hosts' ranks start once per job over TCP. Errors are those
of the median step without the first. Writes emulated_steps.md to --out. Exit status 1: a simulated step is further than
5% from the emulated one, or one on hosts further than 10%.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from machine_jobs import HOSTS, ROOT, call, launcher_on_hosts, seconds_of

MEMORY = "2GiB"
HEAD_DIM = 24  # the demo's model
INTER, INTRA = 200, 800  # Mbit/s of the emulated links
# Hosts x devices, and the strategies there.
JOBS = {
    "2x2": ["4,1,1", "2,2,1", "2,1,2", "dp=4,zero=3", "ulysses=4", "ring=4", "ring=2,ulysses=2"],
    "2x4": ["8,1,1", "2,2,2", "dp=2,ulysses=4", "ring=2,ulysses=4", "tp=2,ring=2,ulysses=2",
            "ring=8,ring_degree=uniform", "to 16384: tp=2,ulysses=4; to 4096: dp=2,ulysses=4; to 1024: 8,1,1"],
    "4x8": ["dp=4,ulysses=8", "tp=2,ring=4,ulysses=4", "to 16384: ring=4,ulysses=8; to 1024: dp=32"],
}
SHARE = {"2x2": 0.3, "2x4": 0.15}  # share of a core for each rank on test hosts
BOUND, BOUND_ON_HOSTS = 0.05, 0.10


def buckets_of(text):
    """[[bucket]] tables of "to 4096: S; to 1024: S", or of one strategy."""
    parts = [part.strip() for part in text.split(";")]
    if not text.startswith("to "):
        parts = [f"to 16384: {text}"]
    tables = []
    for part in parts:
        length, strategy = part.removeprefix("to ").split(": ")
        tables.append(f'[[bucket]]\nmax_length = {length}\nstrategy = "{strategy}"\n')
    return "\n".join(tables)


def demo_job(ranks, data):
    """The demo's job on so many ranks, without its cluster."""
    text = (ROOT / "demo/cluster.toml").read_text().replace('"data/definitions"', json.dumps(os.path.abspath(data)))
    lines = [line for line in text.splitlines() if not line.startswith(("emulate", "ranks"))]
    return "\n".join(lines).replace("[run]", f"[run]\nranks = {ranks}") + "\n"


def write_job(path, strategy, ranks, data):
    path.write_text(f"{demo_job(ranks, data)}\n{buckets_of(strategy)}")
    return path


def steps_of(folder):
    return seconds_of([json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()])[1:]


class OnHosts:
    """Test hosts while it lasts."""

    def __init__(self, arguments, topology):
        self.tool, self.program = arguments.cluster, arguments.program
        self.hosts, self.slots = topology.split("x")
        self.share = SHARE[topology]

    def __enter__(self):
        call(self.tool, "up", "--name", HOSTS, "--hosts", self.hosts, "--slots", self.slots, "--inter",
             f"{INTER * self.share:g}mbit", "--intra", f"{INTRA * self.share:g}mbit", "--cores", self.share)
        return self

    def __exit__(self, *_):
        call(self.tool, "down", "--name", HOSTS)

    def seconds(self, path, out, steps):
        """Steps in the time of whole cores."""
        call(*launcher_on_hosts(self.tool, 1800), self.program, "train", path, "--steps", steps, "--out", out,
             "--set=run.save_last=false")
        return [seconds * self.share for seconds in steps_of(out)]


def row(arguments, folder, topology, strategy, profile, hosts):
    """The errors of the simulation and on the hosts, and the line of the table."""
    hosts_, devices = map(int, topology.split("x"))
    path = write_job(folder / "job.toml", strategy, hosts_ * devices, arguments.data)
    call(arguments.program, "train", path, "--emulate", profile, "--steps", arguments.steps, "--out",
         folder / "emulated", "--force", "--set=run.save_last=false")
    emulated = steps_of(folder / "emulated")
    said = json.loads(call(arguments.program, "simulate", path, "--cluster", profile, "--steps", arguments.steps,
                           "--json").splitlines()[-1])
    simulated = said["seconds_of_steps"][1:]
    error = median([s / e for s, e in zip(simulated, emulated)]) - 1
    words = f"| {topology} | {strategy} | {median(emulated):.2f} | {median(simulated):.2f} | {100 * error:+.1f}% |"
    if not hosts:
        return error, None, words + " | |\n"
    real = hosts.seconds(path, folder / "hosts", arguments.steps)
    apart = median([e / r for e, r in zip(emulated, real)]) - 1
    return error, apart, words + f" {median(real):.2f} | {100 * apart:+.1f}% |\n"


HEAD = ("| cluster | strategy | emulated, s | simulated, s | simulated to emulated | on hosts, s "
        "| emulated to hosts |\n"
        "|---|---|---|---|---|---|---|\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=os.path.abspath, default=str(ROOT / "build/switchyard"))
    parser.add_argument("--data", default=str(ROOT / "data/definitions"))
    parser.add_argument("--cluster", help="tool that makes hosts")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", action="append", default=[], help="only clusters with this name")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    text, errors, apart = HEAD, [], []
    print(HEAD, end="", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for topology, strategies in JOBS.items():
            if arguments.only and topology not in arguments.only:
                continue
            profile = folder / f"{topology}.json"
            call(arguments.program, "profile", "--emulate",
                 f"{topology}:{INTER}Mbit/s,{INTRA}Mbit/s,{MEMORY}", "--head-dim", HEAD_DIM, "--out", profile)
            hosts = OnHosts(arguments, topology) if arguments.cluster and topology in SHARE else None
            if hosts:
                hosts.__enter__()
            try:
                for strategy in strategies:
                    error, on_hosts, line = row(arguments, folder, topology, strategy, profile, hosts)
                    errors.append(abs(error))
                    if on_hosts is not None:
                        apart.append(abs(on_hosts))
                    print(line, end="", flush=True)
                    text += line
            finally:
                if hosts:
                    hosts.__exit__()
    words = "bench/emulated_steps.py" + (" --cluster TOOL" if arguments.cluster else "")
    words += "".join(f" --only {name}" for name in arguments.only)
    means = f"Simulated steps are {100 * sum(errors) / len(errors):.1f}% from emulated ones on average, at most " \
            f"{100 * max(errors):.1f}%."
    if apart:
        means += f" Emulated steps are {100 * sum(apart) / len(apart):.1f}% from those on hosts, at most " \
                 f"{100 * max(apart):.1f}%."
    (arguments.out / "emulated_steps.md").write_text(
        "# Steps on emulated clusters, simulated, and on test hosts\n\n"
        f"Command: `{words} --steps {arguments.steps}`, {datetime.date.today().isoformat()}, {os.cpu_count()} cores. "
        f"Links of {INTER} Mbit/s between hosts and {INTRA} Mbit/s inside; steps on hosts in the time of whole "
        "cores.\n\n"
        f"{means}\n\n{text}")
    print(means)
    sys.exit(max(errors) > BOUND or max(apart, default=0) > BOUND_ON_HOSTS)


if __name__ == "__main__":
    main()
