#!/usr/bin/env python3
"""Pipeline schedules beside each other as `switchyard simulate` predicts them, in Markdown.

Presets with tensor and pipeline parallelism, 4 stages, 32 full documents, one in a micro-batch; then random models,
whose zero-bubble and ZB-V schedules are compared with 1F1B: the mean and the worst ratio of their times.

    bench/schedules_table.py [--program build/switchyard] [--before PROGRAM] [--drawn 200]

before: another build, whose figures stand in brackets.
"""

import argparse
import pathlib
import random
import tempfile

from simulations import Simulations

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEDULES = ["1f1b", "interleaved", "zero-bubble", "zb-v"]
STAGES, DOCUMENTS = 4, 32


def job(model, context, documents, ranks):
    return f"""[model]
{model}
[batch]
sequences = {documents}
context = {context}
lengths = "full"
[run]
ranks = {ranks}
precision = "bf16"
"""


def seconds(programs, text, cluster, strategy):
    """Seconds of a step, by program."""
    with tempfile.TemporaryDirectory() as folder:
        return [Simulations(program, pathlib.Path(folder), text, [], cluster, 0).of(strategy)["step_seconds"]
                for program in programs]


def print_presets(programs):
    print(f"| model, context | cluster | tp | {' | '.join(f'{schedule}, s' for schedule in SCHEDULES)} |")
    print("|---" * (3 + len(SCHEDULES)) + "|")
    for preset, context in ("7b", 4096), ("13b", 4096), ("llama3-70b", 8192):
        for cluster in "a800-80g", "h100-80g":
            for tp in 2, 4, 8:
                text = job(f'preset = "{preset}"', context, DOCUMENTS, tp * STAGES)
                cells = []
                for schedule in SCHEDULES:
                    strategy = f"tp={tp},pp={STAGES},schedule={schedule},micro_batch_sequences=1,recompute=selective"
                    now, *before = seconds(programs, text, cluster, strategy)
                    cells.append(f"{now:.3f}" + "".join(f" ({one:.3f})" for one in before))
                print(f"| {preset}, {context} | {cluster} | {tp} | {' | '.join(cells)} |", flush=True)


def drawn(draw):
    """A model and its pipeline: job, cluster, and the strategy but for its schedule."""
    hidden, pp, tp = draw.choice([512, 1024, 2048, 4096, 8192]), draw.choice([2, 4, 8]), draw.choice([1, 2, 4, 8])
    family = draw.choice(["gpt2", "llama"])
    model = [f'architecture = "{family}"', f"hidden_size = {hidden}", f"heads = {hidden // 64}",
             f"layers = {2 * pp * draw.choice([1, 2, 3])}", f"vocab_size = {draw.choice([8192, 32000, 51200, 128256])}"]
    if family == "llama":
        model.append(f"ffn_size = {hidden * 11 // 4}")
    text = job("\n".join(model), draw.choice([1024, 2048, 8192]), pp * draw.choice([1, 2, 3, 6, 10]), tp * pp)
    return text, draw.choice(["a100-80g", "a800-80g", "h100-80g", "h200-141g"]), tp, f"tp={tp},pp={pp}"


def print_drawn(programs, count):
    ratios = {}
    for seed in range(count):
        text, cluster, tp, strategy = drawn(random.Random(seed))
        usual, *split = [seconds(programs, text, cluster, f"{strategy},micro_batch_sequences=1,schedule={schedule}")
                         for schedule in ("1f1b", "zero-bubble", "zb-v")]
        for schedule, times in zip(("zero-bubble", "zb-v"), split):
            for number, (time, beside) in enumerate(zip(times, usual)):
                ratios.setdefault((schedule, "1" if tp == 1 else "2 to 8", number), []).append(time / beside)
    print("| schedule | tp | models | time / 1F1B's, mean | worst | longer than 1F1B |")
    print("|---|---|---|---|---|---|")
    for schedule, tp in dict.fromkeys(key[:2] for key in ratios):
        of_builds = [ratios[schedule, tp, number] for number in range(len(programs))]
        columns = [[f"{sum(these) / len(these):.3f}", f"{max(these):.3f}", str(sum(one > 1 for one in these))]
                   for these in of_builds]
        cells = [now + "".join(f" ({before[i]})" for before in columns[1:]) for i, now in enumerate(columns[0])]
        print(f"| {schedule} | {tp} | {len(of_builds[0])} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/switchyard")
    parser.add_argument("--before")
    parser.add_argument("--drawn", type=int, default=200)
    arguments = parser.parse_args()
    programs = [arguments.program, *([arguments.before] if arguments.before else [])]
    print_presets(programs)
    print()
    print_drawn(programs, arguments.drawn)


if __name__ == "__main__":
    main()
