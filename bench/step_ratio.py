r"""Compares `switchyard bench step` with the same step in transformers, and data parallelism with one rank.

    .venv/bin/python bench/step_ratio.py [--program build/switchyard] [--rounds 3] [--steps 4] [--compare transformers]
                                         [--compare scaling] [--cuda]

transformers: two threads each, the model of bench/transformers_step.py. scaling: two data-parallel ranks of one thread
and one rank of one thread, with the same global batch. With --cuda instead, on the first GPU and in bf16 (1b-4k,
7b-mixed and so on): models as wide as LLaMA's 1B and 7B, the latter with 4 layers, beside transformers with
torch.compile and flash attention; documents of 4096 tokens, of 32768 tokens, and packed ones of mixed lengths.

The two sides alternate (A B A B ...), each in a process of its own, so that other load of the machine affects both. The
result is the median of the rounds' ratios of tokens per second. The last line printed is a JSON object with all
measurements.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = {"1b": {"hidden": 2048, "layers": 16, "heads": 32, "kv-heads": 8, "ffn": 8192, "vocab": 32000},
          "7b": {"hidden": 4096, "layers": 4, "heads": 32, "kv-heads": 32, "ffn": 11008, "vocab": 32000}}
DOCUMENTS = {"4k": ["--seq", "4096", "--batch", "8"], "32k": ["--seq", "32768", "--batch", "1"],
             "mixed": ["--lengths", "32768,8192x2,4096x2,1024x8", "--micro-batch", "32768"]}


def commands(program, steps):
    """Name of a comparison -> its goal and the commands of its two sides by name."""
    bench = [program, "bench", "step", "--json", "--steps", str(steps + 1)]  # the first one is a warm-up
    oracle = [sys.executable, str(ROOT / "bench/transformers_step.py"), "--steps", str(steps), "--threads", "2"]
    return {
        "transformers": (1.25, {"switchyard": [*bench, "--threads", "2"], "transformers": oracle}),
        "scaling": (1.9, {"dp 2, 2 threads": [*bench, "--ranks", "2", "--threads", "2", "--strategy", "2,1,1"],
                          "1 rank, 1 thread": [*bench, "--ranks", "1", "--threads", "1"]}),
    }


def cuda_commands(program, steps):
    """The same of the comparisons on a GPU."""
    found = {}
    for width, sizes in WIDTHS.items():
        model = [word for size, value in sizes.items() for word in (f"--{size}", str(value))]
        for name, documents in DOCUMENTS.items():
            same = ["--cuda", "--precision", "bf16", *model, *documents, "--steps"]
            found[f"{width}-{name}"] = (1.0, {
                "switchyard": [program, "bench", "step", "--json", *same, str(steps + 1)],
                "transformers": [sys.executable, str(ROOT / "bench/transformers_step.py"), "--compile", *same,
                                 str(steps)]})
    return found


def result_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = " ".join(command)
        raise SystemExit(f"step_ratio: `{words}` ended with status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(name, goal, sides, rounds):
    measured, shares = {side: [] for side in sides}, []
    for number in range(1, rounds + 1):
        for side, command in sides.items():
            result = result_of(command)
            measured[side].append(result["tok_s"])
            shares += [result["matmul_share"]] if "matmul_share" in result else []
            print(f"{name}, round {number} of {rounds}: {side} {measured[side][-1]:.0f} tokens/s",
                  file=sys.stderr, flush=True)
    first, second = measured.values()
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    ratio = statistics.median(ratios)
    print(f"{name}: " + ", ".join(f"{side} {statistics.median(values):.0f} tokens/s"
                                  for side, values in measured.items())
          + f"; ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal {goal}"
          + (f"; switchyard reaches {statistics.median(shares):.0%} of the peak of products" if shares else ""))
    return {"tok_s": measured, "ratios": ratios, "ratio": ratio, "goal": goal, "matmul_share": shares}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/switchyard"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="measured steps per process")
    parser.add_argument("--compare", action="append", help="one of the comparisons; default: all")
    parser.add_argument("--cuda", action="store_true", help="the comparisons on a GPU, and no others")
    arguments = parser.parse_args()
    all_of_them = (cuda_commands if arguments.cuda else commands)(arguments.program, arguments.steps)
    if unknown := set(arguments.compare or []) - set(all_of_them):
        parser.error(f"--compare {min(unknown)}: choose from {', '.join(all_of_them)}")
    results = {}
    for name, (goal, sides) in all_of_them.items():
        if not arguments.compare or name in arguments.compare:
            results[name] = compare(name, goal, sides, arguments.rounds)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
