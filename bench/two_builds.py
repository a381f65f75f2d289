"""Times of two builds of this program in turns: whether a change made any of them longer.

    .venv/bin/python bench/two_builds.py BEFORE AFTER [--rounds 5] [--only NAME] [--after-plan WORDS]

BEFORE and AFTER are programs. Both run the same commands: a training step, a hot switch and an all-reduce on the thread
fabric (`bench step`, `bench switch`, `bench comm`), the start of a job of one small step, the simulation of a step, and
the plan of a job. The spaces of plans of two builds may differ: --after-plan has further words for `plan` of AFTER.

Each round runs every command with both, one after the other, first the one that was second in the round before. The
table has medians and the ratios of all rounds. BEFORE must know the options that are used here.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import machine_jobs

JOB = """[model]
preset = "7b"

[batch]
context = 8192
sequences = 512
lengths = "{lengths}"

[run]
ranks = 32
device = "cpu"
"""
BUCKETS = """
[[bucket]]
max_length = 8192
strategy = "4,4,2"

[[bucket]]
max_length = 1024
strategy = "16,2,1"
"""


def wall(words):
    """Seconds of a command."""
    began = time.monotonic()
    machine_jobs.call(*words)
    return time.monotonic() - began


def in_json(seconds):
    """Seconds that a command's JSON has."""
    return lambda words: seconds(json.loads(machine_jobs.call(*words, "--json").splitlines()[-1]))


def rows_in(folder, after_plan):
    """Name -> how a command is timed, its words, and those of the second build alone."""
    lengths, simulated, planned = folder / "lengths.json", folder / "simulated.toml", folder / "planned.toml"
    lengths.write_text(json.dumps({"bins": [[64, 1024, 900], [1024, 4096, 90], [4096, 8193, 10]]}))
    job = JOB.format(lengths=lengths)
    simulated.write_text(job + BUCKETS)
    planned.write_text(job)
    small = machine_jobs.write_job(folder / "small", machine_jobs.job(
        "1,2,1", 64, 4, run=machine_jobs.TWO_THREADS | {"steps": 1}))
    step = ["bench", "step", "--steps", "6"]
    of_step = in_json(lambda found: found["step_seconds"])
    return {
        "training step, 1 rank": (of_step, step, []),
        "training step, 2 tensor parallel ranks": (of_step, [*step, "--ranks", "2", "--strategy", "1,2,1"], []),
        "hot switch": (in_json(lambda found: found["switch_seconds"]), ["bench", "switch", "--repetitions", "15"], []),
        "all-reduce, 64 MiB": (in_json(lambda found: found["all_reduce"][-1]["all_reduce_seconds"]), ["bench", "comm"],
                               []),
        "a job of one step": (wall, ["train", small], []),
        "simulation of a step, 32 ranks": (wall, ["simulate", simulated, "--cluster", "h100-80g"], []),
        "plan, 32 ranks": (wall, ["plan", planned, "--cluster", "h100-80g", "--seconds", "0"], after_plan.split()),
    }


def measure(seconds, words, programs, extra, rounds):
    """Seconds of both programs by round."""
    found = []
    for number in range(rounds):
        times = [0.0, 0.0]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[side] = seconds([programs[side], *words, *(extra if side == 1 else [])])
        found.append(times)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=os.path.abspath)
    parser.add_argument("after", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--after-plan", default="", metavar="WORDS", help="further words for `plan` of AFTER")
    options = parser.parse_args()
    print("| | before, s | after, s | after / before | each round |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (seconds, words, extra) in rows_in(Path(folder), options.after_plan).items():
            if options.only not in name:
                continue
            found = measure(seconds, words, (options.before, options.after), extra, options.rounds)
            before, after = (statistics.median(times) for times in zip(*found, strict=True))
            ratios = [times[1] / times[0] for times in found]
            print(f"| {name} | {before:.3g} | {after:.3g} | {statistics.median(ratios):.2f} | "
                  f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} |", flush=True)


if __name__ == "__main__":
    main()
