#!/usr/bin/env python3
"""Compares the planner's choice with measured strategies, as tables in Markdown.

    bench/planner_choice.py [--program build/switchyard] [--only WORD]... [--rounds N] [--profile FILE]
                            [--settle SECONDS] [--out FOLDER]

There are five workloads with at least twelve strategies each, for two ranks of one thread. The machine is profiled
once. Then every round trains every strategy and the job without one, which is planned (`strategy = "auto"`). The result
of a strategy is the median of its steps in all rounds, so that a slow period of the machine affects all strategies. A
strategy that takes 20% longer than the best one so far is left out of later rounds. Strategies with bit-identical
predicted times and bytes have the same program and share their steps. Writes planner_choice.md to --out. Exit status 1:
in a workload the planner's choice takes more than 2% longer than the best strategy.
"""

import datetime
import os
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from statistics import median

from machine_jobs import MIXED, Machine, arguments_of, gpt2, job, model, write_job

ROUNDS = 3
BOUND = 0.02
BEHIND = 1.2
PLANNED = "the planner's choice"

# Strategies for a context of so many tokens; the last two switch.
def strategies(context):
    twice = {"micro_batch_tokens": 2 * context}
    return {
        "dp 2": ("2,1,1", {}),
        "dp 2, larger micro-batches": ("2,1,1", twice),
        "dp 2, full recomputation": ("2,1,1", {"recompute": "full"}),
        "tp 2": ("1,2,1", {}),
        "tp 2, larger micro-batches": ("1,2,1", twice),
        "tp 2, no sequence parallelism": ("1,2,1", {"sequence_parallel": False}),
        "pp 2": ("1,1,2", {}),
        "pp 2, larger micro-batches": ("1,1,2", twice),
        "pp 2, GPipe": ("1,1,2", {"schedule": "gpipe"}),
        "pp 2, interleaved": ("1,1,2", {"schedule": "interleaved", "chunks": 2}),
        "pp 2, zero-bubble": ("1,1,2", {"schedule": "zero-bubble"}),
        "pp 2, ZB-V": ("1,1,2", {"schedule": "zb-v"}),
        "tp 2, dp 2 below": ([(context, "1,2,1"), (context // 4, "2,1,1")], {}),
        "pp 2, dp 2 below": ([(context, "1,1,2"), (context // 4, "2,1,1")], {}),
    }


# lengths of documents, documents per step, model
WORKLOADS = {
    "short": (256, 16, model(256)),
    "mixed": (MIXED, 12, model(256)),
    "one long document": (4096, 1, model(128)),
    "wide": ([512, 1024], 4, model(512)),
    "GPT-2": ([256, 256, 1024], 9, gpt2(256)),
}


def jobs_of(lengths, documents, sizes):
    """Jobs by name; the planned one has no buckets."""
    context = max(lengths) if isinstance(lengths, list) else lengths
    jobs = {}
    for name, (strategy, settings) in strategies(context).items():
        if isinstance(strategy, list) and not isinstance(lengths, list):
            continue  # there is nothing to switch for
        jobs[name] = job(strategy, lengths, documents, sizes=sizes, **settings)
    return jobs | {PLANNED: job([], lengths, documents, sizes=sizes)}


def compared(steps, predictions):
    """Names and seconds, the quickest first. Strategies with equal predictions share their steps."""
    same = lambda a, b: all(predictions[a][key] == predictions[b][key] for key in ("seconds_of_steps", "peak_bytes"))
    pooled = {name: [step for other in steps if same(other, name) for step in steps[other]] for name in steps}
    return sorted(((name, median(values)) for name, values in pooled.items()),
                  key=lambda row: (row[1], row[0] != PLANNED))


def described(job):
    """Every bucket of a run's job, with its unusual settings."""
    parts = []
    for bucket in tomllib.loads(job.read_text())["bucket"]:
        strategy = bucket["strategy"]
        rows = strategy["micro_batch_tokens"] or bucket["max_length"]
        part = f"{strategy['dp']},{strategy['tp']},{strategy['pp']} up to {bucket['max_length']} in rows of {rows}"
        part += f", {strategy['schedule']}" if strategy["pp"] > 1 else ""
        parts.append(part + (f", {strategy['recompute']} recomputation" if strategy["recompute"] != "gathers" else ""))
    return "; ".join(parts)


def main():
    arguments = arguments_of(__doc__, ROUNDS, "workloads").parse_args()
    chosen = {name: jobs_of(*spec) for name, spec in WORKLOADS.items() if not arguments.only
              or any(word in name for word in arguments.only)}
    steps = {workload: {name: [] for name in jobs} for workload, jobs in chosen.items()}
    predictions = {workload: {} for workload in chosen}
    choices = {}
    with tempfile.TemporaryDirectory() as folder, Machine(arguments, Path(folder)) as machine:
        for _ in range(arguments.rounds):
            for workload, jobs in chosen.items():
                best = min((median(done) for done in steps[workload].values() if done), default=0)
                for name, spec in jobs.items():
                    done = steps[workload][name]
                    if done and name != PLANNED and median(done) > BEHIND * best:
                        continue
                    folder = machine.folder / workload.replace(" ", "-")
                    path = write_job(folder / re.sub("[,']", "", name.replace(" ", "-")), spec)
                    done += machine.measured(path)[0]
                    print(f"{workload}, {name}: {median(done):.3f} s", file=sys.stderr, flush=True)
                    resolved = path.parent / "run" / "job.toml"
                    predictions[workload][name] = machine.predicted(resolved)
                    if name == PLANNED:
                        choices[workload] = described(resolved)
    text, behind = "", []
    for workload in chosen:
        rows = compared(steps[workload], predictions[workload])
        best, planned = rows[0][1], dict(rows)[PLANNED]
        behind.append(planned / best - 1)
        text += (f"\n## {workload}: the planner's choice takes {100 * behind[-1]:+.1f}%\n\n"
                 f"It is {choices[workload]}.\n\n| strategy | s per step | | predicted |\n|---|---|---|---|\n")
        text += "".join(f"| {name} | {seconds:.3f} | {100 * (seconds / best - 1):+.1f}% | "
                        f"{median(predictions[workload][name]['seconds_of_steps'][1:]):.3f} |\n"
                        for name, seconds in rows)
    summary = (f"{len(behind)} workloads: the planner's choice takes at most {100 * max(behind):.1f}% longer than the "
               "best strategy.")
    print(text + "\n" + summary)
    if not arguments.only:
        arguments.out.mkdir(parents=True, exist_ok=True)
        head = (f"# The planner's choice and measured strategies\n\nCommand: `bench/planner_choice.py`, "
                f"{datetime.date.today().isoformat()}, {os.cpu_count()} cores, ")
        (arguments.out / "planner_choice.md").write_text(f"{head}{arguments.rounds} rounds.\n\n{summary}\n{text}")
    sys.exit(max(behind) > BOUND)


if __name__ == "__main__":
    main()
