#!/usr/bin/env python3
"""What plans gain on emulated clusters over the best single strategy and over the usual default, as Markdown.

    bench/emulated_gains.py [--program build/switchyard] [--data data/definitions data/python] [--topology 2x4 4x4]
                            [--memory 8 6] [--repeats 1] [--steps 3] [--profile FILE] [--out FOLDER]

The job is demo/cluster.toml on each corpus: hosts x devices, 800 Mbit/s inside a host and 200 Mbit/s between hosts, and
--memory N: devices with an N-th of what the longest document needs on one device that keeps all activations, parameters
and optimizer included. The plan, the best single strategy with balanced documents, and the usual default (the same
split with documents in the data's order) are simulated, and trained in turns. Profile: of an emulated cluster, taken
before; hosts, links and memory are replaced. Steps are the mean without the first. Writes emulated_gains.md to --out.
Exit status 1: losses differ.
"""

import argparse
import datetime
import itertools
import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from statistics import mean

from emulated_steps import HEAD_DIM, INTER, INTRA, demo_job
from machine_jobs import ROOT, call

sys.path.insert(0, str(ROOT / "tools"))
import demo  # noqa: E402  for its contenders, runs and check of the losses

HEAD = ("| corpus | cluster | memory | strategies | step, s | simulated, s | to the plan's, measured | simulated "
        "| computing, exposed communication, idle |\n"
        "|---|---|---|---|---|---|---|---|---|\n")


def ranks_of(topology):
    hosts, devices = map(int, topology.split("x"))
    return hosts * devices


def on_cluster(profile, topology, memory, path):
    """The profile with other hosts and another memory."""
    hosts, devices = map(int, topology.split("x"))
    text = json.loads(profile.read_text())
    text |= {"hosts": hosts, "devices_per_host": devices, "name": topology}
    text["links"] = {"intra_host": {"bandwidth": INTRA * 1e6 / 8, "latency": 1e-5, "shared_by": 1}}
    if hosts > 1:
        text["links"]["inter_host"] = {"bandwidth": INTER * 1e6 / 8, "latency": 5e-5, "shared_by": devices}
    text["device"]["memory"] = memory
    path.write_text(json.dumps(text))
    return path


def longest_bytes(program, profile, job, folder):
    """What the longest document needs on one device that keeps all activations."""
    one = on_cluster(profile, "1x1", 1 << 40, folder / "one.json")
    said = call(program, "simulate", job, "--cluster", one, "--ranks", 1, "--lengths", "full", "--strategy",
                "dp=1,recompute=none", "--set", "batch.tokens=16384", "--json")
    return json.loads(said.splitlines()[-1])["peak_bytes"][0]


def strategies_of(job):
    """The buckets of a job that `plan` wrote, as it prints them."""
    buckets = tomllib.loads(job.read_text())["bucket"]
    return "; ".join(f"to {bucket['max_length']}: {bucket['strategy']['name']}" for bucket in buckets)


def rows(name, topology, memory, found):
    """A line for each contender, the plan first."""
    simulated = [mean(one.simulated["seconds_of_steps"][1:]) for one in found]  # the same steps
    seconds = [mean(r["seconds"] for log in one.logs for r in log) for one in found]
    for one, said, measured in zip(found, simulated, seconds):
        parts = [100 * part / one.simulated["step_seconds"] for part in demo.seconds_of(one.simulated).values()]
        yield (f"| {name} | {topology} | {memory} | {one.title}: {strategies_of(one.job)} | {measured:.2f} | "
               f"{said:.2f} | {measured / seconds[0]:.2f} | {said / simulated[0]:.2f} | "
               f"{', '.join(f'{part:.0f}%' for part in parts)} |\n")


def measure(arguments, data, topology, part, folder):
    """The memory, the contenders trained in turns, and how far their losses are apart."""
    job = folder / "job.toml"
    job.write_text(demo_job(ranks_of(topology), data))
    memory = longest_bytes(arguments.program, arguments.profile, job, folder) // part
    cluster = on_cluster(arguments.profile, topology, memory, folder / "cluster.json")
    found = demo.contenders(arguments.program, job, cluster, folder, arguments.steps)
    apart = demo.train_in_turns(arguments.program, found, cluster, folder, arguments.steps, arguments.repeats)
    return memory, found, apart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=os.path.abspath, default=str(ROOT / "build/switchyard"))
    parser.add_argument("--data", nargs="+", default=[str(ROOT / "data" / name) for name in ("definitions", "python")])
    parser.add_argument("--topology", nargs="+", default=["2x4", "4x4"])
    parser.add_argument("--memory", nargs="+", type=int, default=[8, 6])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--profile", type=Path, help="of an emulated cluster, instead of a fresh one")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    text, worst = HEAD, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not arguments.profile:
            arguments.profile = folder / "profile.json"
            call(arguments.program, "profile", "--emulate", f"2x4:{INTER}Mbit/s,{INTRA}Mbit/s,1GiB", "--head-dim",
                 HEAD_DIM, "--out", arguments.profile)
        print(HEAD, end="", flush=True)
        for data, topology, part in itertools.product(arguments.data, arguments.topology, arguments.memory):
            memory, found, apart = measure(arguments, data, topology, part, folder)
            lines = "".join(rows(Path(data).name, topology, f"1/{part}: {memory / 2**20:.0f} MiB", found))
            print(lines, end="", flush=True)
            text, worst = text + lines, max(worst, apart)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "emulated_gains.md").write_text(
        "# What plans gain on emulated clusters\n\n"
        f"Command: `bench/emulated_gains.py --topology {' '.join(arguments.topology)} --memory "
        f"{' '.join(map(str, arguments.memory))} --repeats {arguments.repeats} --steps {arguments.steps}`, "
        f"{datetime.date.today().isoformat()}, {os.cpu_count()} cores. Links of {INTER} Mbit/s between hosts and "
        f"{INTRA} Mbit/s inside. Losses of all runs of a job agree to {worst:.1e} relative.\n\n{text}")
    sys.exit(worst > demo.TOLERANCE)


if __name__ == "__main__":
    main()
