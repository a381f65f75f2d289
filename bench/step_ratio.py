r"""Compares `switchyard bench step` with the same step in transformers, and data parallelism with one rank.

    .venv/bin/python bench/step_ratio.py [--rounds 3] [--steps 4] [--compare transformers] [--compare scaling]

transformers: two threads each, the model of bench/transformers_step.py. scaling: two data-parallel ranks of one thread
and one rank of one thread, with the same global batch. The two sides alternate (A B A B ...), each in a process of its
own, so that other load of the machine affects both. The result is the median of the rounds' ratios of tokens per
second. The last line printed is a JSON object with all measurements.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commands(program, steps):
    """Name of a comparison -> its goal and the commands of its two sides by name."""
    bench = [program, "bench", "step", "--json", "--steps", str(steps + 1)]  # the first one is a warm-up
    oracle = [sys.executable, str(ROOT / "bench/transformers_step.py"), "--steps", str(steps), "--threads", "2"]
    return {
        "transformers": (1.25, {"switchyard": [*bench, "--threads", "2"], "transformers": oracle}),
        "scaling": (1.9, {"dp 2, 2 threads": [*bench, "--ranks", "2", "--threads", "2", "--strategy", "2,1,1"],
                          "1 rank, 1 thread": [*bench, "--ranks", "1", "--threads", "1"]}),
    }


def tokens_per_second(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = " ".join(command)
        raise SystemExit(f"step_ratio: `{words}` ended with status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])["tok_s"]


def compare(name, goal, sides, rounds):
    measured = {side: [] for side in sides}
    for number in range(1, rounds + 1):
        for side, command in sides.items():
            measured[side].append(tokens_per_second(command))
            print(f"{name}, round {number} of {rounds}: {side} {measured[side][-1]:.0f} tokens/s",
                  file=sys.stderr, flush=True)
    first, second = measured.values()
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    ratio = statistics.median(ratios)
    print(f"{name}: " + ", ".join(f"{side} {statistics.median(values):.0f} tokens/s"
                                  for side, values in measured.items())
          + f"; ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal {goal}")
    return {"tok_s": measured, "ratios": ratios, "ratio": ratio, "goal": goal}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/switchyard"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="measured steps per process")
    parser.add_argument("--compare", action="append", choices=["transformers", "scaling"], help="default: both")
    arguments = parser.parse_args()
    results = {}
    for name, (goal, sides) in commands(arguments.program, arguments.steps).items():
        if not arguments.compare or name in arguments.compare:
            results[name] = compare(name, goal, sides, arguments.rounds)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
