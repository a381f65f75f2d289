#!/usr/bin/env python3
"""Long documents on many devices, simulated: seconds of a step of 4M tokens, as Markdown.

  a0  the usual default: rows of the context's length with documents in the order of the data, padded to twice the
      degree of context parallelism, under the quickest of several strategies of tensor, context and data parallelism
  a   the best single strategy whose documents all have one degree, balanced
  b   the best single strategy of the planner, with a degree of ring attention for each document
  c   the planner's buckets, all documents of a bucket with one degree
  d   the planner's plan: buckets, and a degree for each document

    bench/long_documents.py [--program build/switchyard] [--cluster h100-80g] [--seconds 20] [--jobs 2]
                            [--lengths github] [--model 7b ...] [--gpus 64 ...] [--context 32768 ...]

Without options the whole table is made. All are timed by `switchyard simulate` on the same documents, on hosts of eight
devices of --cluster. a is the quickest of b's strategy with one degree and of the strategies in UNIFORM; c is d's plan
with one degree in each bucket. Candidates that don't fit the devices are left out.
"""

import argparse
import concurrent.futures
import pathlib
import sys
import tempfile

from simulations import ROOT, Simulations, bins_up_to, quickest

sys.path.insert(0, str(ROOT / "tools"))
import demo  # noqa: E402

TOKENS = 4 * 2**20
PER_HOST = 8
MODELS = ("7b", "13b", "32b", "llama3-8b")
CONTEXTS = (2**15, 2**17, 2**19, 2**20)
LEAST_SHARE = 2**13  # tokens of the longest document on a rank: fewer are not worth more ranks
SAVINGS = ((1, "full"), (3, "gathers"), (3, "full"))  # ZeRO's stage and recomputation


def job_text(model, gpus, context):
    return f"""
[model]
preset = "{model}"
[batch]
context = {context}
tokens = {TOKENS}
lengths = "lengths.json"
[run]
ranks = {gpus}
precision = "bf16"
"""


def splits(gpus, context):
    """(dp, tp, ranks that share a document) of uniform strategies."""
    most = max(1, context // LEAST_SHARE)
    return [(gpus // tp // share, tp, share) for tp in (1, PER_HOST)
            for share in sorted({min(wanted, gpus // tp) for wanted in (most // 4, most) if wanted >= 1})]


def defaults(gpus, context):
    return [f"dp={dp},tp={tp},ring={share},zero={zero},packing=stream,recompute={recompute}"
            for dp, tp, share in splits(gpus, context) for zero, recompute in SAVINGS]


def uniform(gpus, context):
    """Balanced, with Ulysses inside hosts as far as it goes."""
    inside = [(dp, tp, share, min(share, PER_HOST // tp)) for dp, tp, share in splits(gpus, context)]
    return [f"dp={dp},tp={tp},ring={share // ulysses},ulysses={ulysses},zero={zero},recompute={recompute}" +
            (",ring_degree=uniform" if share > ulysses else "")
            for dp, tp, share, ulysses in inside for zero, recompute in SAVINGS]


def with_one_degree(simulations, plan):
    job = simulations.folder / "uniform.toml"
    job.write_text(demo.with_one_degree(plan["job"]))
    return simulations.run("simulate", job) | {"strategy": plan["strategy"] + ", ring_degree=uniform"}


def evaluate(options, model, gpus, context):
    with tempfile.TemporaryDirectory() as folder:
        cluster = f"{options.cluster}:{gpus // PER_HOST}x{PER_HOST}"
        simulations = Simulations(options.program, pathlib.Path(folder), job_text(model, gpus, context),
                                  bins_up_to(options.lengths, context), cluster, options.seconds)
        single, plan = simulations.planned("--buckets", "1"), simulations.planned()
        return {"a0": quickest([simulations.of(strategy) for strategy in defaults(gpus, context)]),
                "a": quickest([with_one_degree(simulations, single),
                               *(simulations.of(strategy) for strategy in uniform(gpus, context))]),
                "b": single, "c": with_one_degree(simulations, plan), "d": quickest([single, plan])}


def row_of(model, gpus, context, found):
    seconds = {name: one["step_seconds"] if one else None for name, one in found.items()}
    gains = [f"{seconds[name] / seconds['d']:.2f}" if seconds[name] else "" for name in ("a0", "a")]
    cells = [model, gpus, context, *(f"{time:.4g}" if time else "does not fit" for time in seconds.values()), *gains]
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build" / "switchyard")
    parser.add_argument("--cluster", default="h100-80g")
    parser.add_argument("--lengths", default="github", choices=["commoncrawl", "github"])
    parser.add_argument("--seconds", type=float, default=20, help="of the planner's search")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--gpus", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--context", nargs="+", type=int, default=CONTEXTS)
    options = parser.parse_args()
    cases = [(model, gpus, context) for model in options.model for gpus in options.gpus for context in options.context]
    head = ["model", "GPUs", "context", *(f"{name}, s" for name in ("a0", "a", "b", "c", "d")), "a0 / d", "a / d"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    found = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, figures in zip(cases, pool.map(lambda case: evaluate(options, *case), cases)):
            print(row_of(*case, figures), flush=True)
            found.append(figures)
    print()
    for case, figures in zip(cases, found):
        chosen = "; ".join(f"{what}: `{one['strategy']}`" for what, one in figures.items() if one)
        print(f"- {' '.join(map(str, case))}: {chosen}")


if __name__ == "__main__":
    main()
