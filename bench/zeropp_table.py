#!/usr/bin/env python3
"""ZeroPP beside 3-D parallelism and plain ZeRO-3 as `switchyard simulate` predicts them, in Markdown.

ZeroPP is up to 33% quicker than 3-D parallelism on up to 64 devices (D. Tang et al., arXiv 2402.03791, abstract). Each
system is predicted with several strategies, of which the quickest that fits its devices is compared.

    bench/zeropp_table.py [--program build/switchyard] [--jobs 2] [--cluster a800-80g] [--sequences 256] [--all]
                         [MODEL ...]
"""

import argparse
import concurrent.futures
import pathlib

import gpt_jobs

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS, PUBLISHED_GAIN = 64, 1.33  # gain: taken as the ratio of times
# D. Narayanan et al., arXiv 2104.04473, table 1.
MODELS = {"18b": gpt_jobs.Model(layers=40, hidden=6144, heads=48, vocabulary=51200, context=2048),
          "39b": gpt_jobs.Model(layers=48, hidden=8192, heads=64, vocabulary=51200, context=2048)}
RECOMPUTE = ["gathers", "full"]  # attention is fused: "selective" saves little


def megatron(sequences):
    """Tensor, pipeline and data parallelism with the distributed optimizer (ZeRO-1)."""
    for tp, pp in (8, 1), (4, 2), (8, 2), (2, 4), (4, 4), (8, 4), (2, 8), (4, 8):
        for micro in 1, 2:
            for schedule in ("schedule=1f1b", "schedule=interleaved,chunks=2") if pp > 1 else ("schedule=1f1b",):
                if sequences // (RANKS // tp // pp) >= micro * pp:
                    yield f"dp={RANKS // tp // pp},tp={tp},pp={pp},{schedule},micro_batch_sequences={micro}"


def zero3(sequences):
    for micro in 1, 2, 4:
        if sequences >= RANKS * micro:
            yield f"dp={RANKS},zero=3,micro_batch_sequences={micro}"


def zeropp(sequences):
    """Parameters are cut inside a host; with several places on data these go through all hosts (ZeRO-3 with ZeRO-1), or
    are cut over all."""
    for pp in 2, 4, 8:
        data = RANKS // pp
        rows = [f"dp={data},pp={pp},zero=3"] + ([f"dp={data // 8},pp={pp},depth=8"] if data > 8 else [])
        for micro in 1, 2, 4:
            most = sequences // data // micro
            for every in sorted({min(most, every) for every in (pp, 2 * pp - 1, most)} - {0, 1}):
                for chunks in 1, 2, 4:
                    for row in rows:
                        yield f"{row},every={every},schedule=zeropp,chunks={chunks},micro_batch_sequences={micro}"


SYSTEMS = {"3-D": megatron, "ZeRO-3": zero3, "ZeroPP": zeropp}


def print_table(name, found, every_one):
    """found: system, strategy, figures."""
    print("| model | system | strategy | seconds a step | communication, of it hidden | idle | peak memory | fits |")
    print("|---|---|---|---|---|---|---|---|")
    best = {}
    for system in SYSTEMS:
        of_system = sorted((case for case in found if case[0] == system), key=lambda case: case[2]["step_seconds"])
        fitting = [case for case in of_system if case[2]["fits"]]
        if fitting:
            best[system] = fitting[0][2]["step_seconds"]
        for _, strategy, f in of_system if every_one else fitting[:3] or of_system[:1]:
            print(f"| {name} | {system} | `{strategy}` | {f['step_seconds']:.2f} | "
                  f"{f['communication_seconds']:.2f}, {f['overlap_seconds']:.2f} | {f['idle_seconds']:.2f} | "
                  f"{max(f['peak_bytes']) / 2**30:.1f} GiB | {'yes' if f['fits'] else 'no'} |")
    for system in "3-D", "ZeRO-3":
        if best.keys() >= {system, "ZeroPP"}:
            gain = best[system] / best["ZeroPP"]
            print(f"\n{name}: ZeroPP is {gain:.2f} times as quick as {system}" +
                  (f"; published: up to {PUBLISHED_GAIN:.2f}." if system == "3-D" else "."))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build" / "switchyard")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cluster", default="a800-80g")
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--all", action="store_true", help="print every strategy, not only the three quickest that fit")
    parser.add_argument("model", nargs="*", choices=[[], *MODELS])
    options = parser.parse_args()
    for name in options.model or MODELS:
        cases = [(system, f"{text},recompute={recompute}") for system, texts in SYSTEMS.items()
                 for text in texts(options.sequences) for recompute in RECOMPUTE]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            figures = pool.map(lambda case: gpt_jobs.simulated(options.program, MODELS[name], case[1],
                                                               options.sequences, RANKS, options.cluster), cases)
            print_table(name, [(*case, f) for case, f in zip(cases, figures)], options.all)
        print()


if __name__ == "__main__":
    main()
