#!/usr/bin/env python3
"""Compares measured steps of the demo's job on two test hosts of two ranks with `switchyard simulate`, as Markdown.

    bench/demo_on_hosts.py --cluster TOOL [--program build/switchyard] [--data data/python] [--inter 400mbit]
                           [--intra 2gbit] [--cores 0.45] [--hosts 2] [--slots 2] [--steps 6] [--strategy S ...]
                           [--out FOLDER]

TOOL makes hosts with slow links, on which every rank has a fixed share of a core: `TOOL up --hosts 2 --slots 2
--inter 400mbit --intra 2gbit --cores 0.45`, `TOOL launch -- COMMAND` for a process for each rank with the variables of
torchrun, and SWITCHYARD_HOST with the name of its host, `TOOL run -n RANKS -- COMMAND` for mpirun, `TOOL down`; each
with a --name. The hosts are profiled over TCP; then the job trains with its own buckets and with single strategies,
without its memory budget. DATA is the corpus that `make demo` prepares. The error is that of the median step, without
the first, which touches fresh memory. Writes demo_on_hosts.md to --out. Exit status 1: an error is above 5%.
"""

import argparse
import contextlib
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from machine_jobs import HOSTS, ROOT, call, launcher_on_hosts, seconds_of

STRATEGIES = ["own buckets", "1,2,2", "2,2,1", "1,4,1"]
BOUND = 0.05
HEAD = "| strategy | seconds per step, median | predicted / measured, each step | error |\n|---|---|---|---|\n"


def write_job(folder, strategy, data):
    text = (ROOT / "demo/job.toml").read_text().replace('"data/python"', json.dumps(os.path.abspath(data)))
    text = "\n".join(line for line in text.splitlines() if not line.startswith("memory_budget"))
    if strategy != STRATEGIES[0]:
        before, rest = text.split("[[bucket]]", 1)
        rest = rest.split("[optimizer]", 1)[1]
        text = f'{before}[[bucket]]\nmax_length = 4096\nstrategy = "{strategy}"\n\n[optimizer]{rest}'
    path = folder / "job.toml"
    folder.mkdir()
    path.write_text(text + "\n")
    return path


def row(program, launcher, path, profile, strategy, steps):
    out = path.parent / "run"
    call(*launcher, program, "train", path, "--steps", steps, "--out", out, "--set=run.save_last=false")
    measured = seconds_of([json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()])[1:]
    said = json.loads(call(program, "simulate", path, "--cluster", profile, "--steps", steps,
                           "--json").splitlines()[-1])
    ratios = [predicted / seconds for predicted, seconds in zip(said["seconds_of_steps"][1:], measured)]
    error = median(ratios) - 1
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return error, f"| {strategy} | {median(measured):.2f} | {each} | {100 * error:+.1f}% |\n"


def profiled(program, launcher, folder, *options):
    """The profile of the hosts, and its links in words."""
    profile = folder / "profile.json"
    call(*launcher, program, "profile", "--threads", 1, "--out", profile, *options)
    links = json.loads(profile.read_text())["links"]
    rates = ", ".join(f"{name.replace('_', ' ')} {8 * link['bandwidth'] / 1e6:.0f} Mbit/s"
                      for name, link in links.items())
    return profile, f"Links as profiled: {rates}.\n\n"


def add_hosts(parser, cores, slots=2, hosts=2):
    """Options of the hosts, of the program and of what it trains on."""
    parser.add_argument("--program", type=os.path.abspath, default=str(ROOT / "build/switchyard"))
    parser.add_argument("--cluster", required=True, help="tool that makes hosts")
    parser.add_argument("--data", default=str(ROOT / "data/python"))
    parser.add_argument("--inter", default="400mbit")
    parser.add_argument("--intra", default="2gbit")
    parser.add_argument("--cores", default=cores)
    parser.add_argument("--hosts", type=int, default=hosts)
    parser.add_argument("--slots", type=int, default=slots, help="ranks of a host")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")


def write_page(name, title, text, arguments, options, program="", table=""):
    """Writes name.md: a title, the command with these options, and the text. program: whose page it is, if not of this
    name; table: what comes before the options."""
    values = " ".join(f"--{option} {getattr(arguments, option)}" for option in options)
    words = f"bench/{program or name}.py {table + ' ' if table else ''}--cluster TOOL {values}"
    when = f"Command: `{words}`, {datetime.date.today().isoformat()}, {os.cpu_count()} cores."
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.md").write_text(f"# {title}\n\n{when}\n\n{text}")


@contextlib.contextmanager
def hosts_of(arguments):
    """Hosts while it lasts: the command that launches a program there."""
    call(arguments.cluster, "up", "--name", HOSTS, "--hosts", arguments.hosts, "--slots", arguments.slots,
         "--inter", arguments.inter, "--intra", arguments.intra, "--cores", arguments.cores)
    try:
        yield launcher_on_hosts(arguments.cluster)
    finally:
        call(arguments.cluster, "down", "--name", HOSTS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_hosts(parser, cores="0.45")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--strategy", nargs="+", default=STRATEGIES)
    arguments = parser.parse_args()
    with hosts_of(arguments) as launcher, tempfile.TemporaryDirectory() as folder:
        profile, links = profiled(arguments.program, launcher, Path(folder))
        text = links + HEAD
        print(text, end="", flush=True)
        errors = []
        for strategy in arguments.strategy:
            path = write_job(Path(folder) / strategy.replace(" ", "-"), strategy, arguments.data)
            error, line = row(arguments.program, launcher, path, profile, strategy, arguments.steps)
            errors.append(abs(error))
            print(line, end="", flush=True)
            text += line
    write_page("demo_on_hosts", "The demo's job on two test hosts, measured and predicted", text, arguments,
               ["inter", "intra", "cores", "steps"])
    sys.exit(max(errors) > BOUND)


if __name__ == "__main__":
    main()
