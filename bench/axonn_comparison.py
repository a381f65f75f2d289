#!/usr/bin/env python3
"""AxoNN's published comparison with Megatron-LM as `switchyard simulate` predicts it, in Markdown.

A GPT of 80B parameters on 1024 A100 of Perlmutter: AxoNN is 26% quicker than Megatron-LM and reaches 57% of the peak,
182 Pflop/s (S. Singh et al., arXiv 2305.13525, abstract). Each system is predicted with several strategies, of which
the quickest that fits its devices is compared.

    bench/axonn_comparison.py [--program build/switchyard] [--jobs 2] [--sequences 8192] [SYSTEM ...]
"""

import argparse
import concurrent.futures
import pathlib

import gpt_jobs

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS, PEAK = 1024, 312e12  # flop/s of a device in bf16
PUBLISHED_GAIN, PUBLISHED_SHARE = 1.26, 0.57  # gain: taken as the ratio of times
# axonn-ai/Megatron-AxoNN, commit 8a4ae24: the model is examples/launch_per_comm_model.py, "80B"; sequences, bf16, fused
# attention and full recomputation are examples/template_perlmutter.sh. The vocabulary is GPT-2's, padded.
MODEL = gpt_jobs.Model(layers=42, hidden=12288, heads=96, vocabulary=51200, context=2048)
CLUSTER = ROOT / "bench" / "published" / "clusters" / "perlmutter.toml"
SEQUENCES = 8192  # 8 for a device, as examples/run_axonn.sh has (512 on 64 devices); the paper's may be another number
# Gr, Gc, Gd, Gdata, most sequences of a micro-batch. AxoNN's communication model (get_configs_for_transformer of that
# commit) ranks those first that have only depth, for 1024 devices and at least 64 parts of the model; the others fill
# hosts with Gr and Gc.
AXONN = [(1, 1, 64, 16, 8), (2, 2, 256, 1, 16), (2, 2, 64, 4, 16), (2, 2, 16, 16, 16), (1, 4, 64, 4, 16),
         (4, 1, 64, 4, 16)]
# tp, pp, sequences of a micro-batch; with sequence parallelism and the distributed optimizer (ZeRO-1).
MEGATRON = [(4, 8, 1), (4, 8, 2), (4, 16, 1), (4, 16, 2), (8, 4, 1), (8, 8, 2), (32, 1, 8)]


def strategies(system, sequences):
    """name -> the strategy's text."""
    if system == "megatron":
        return {f"tp {tp}, pp {pp}, dp {RANKS // tp // pp}, micro-batch {micro}":
                f"dp={RANKS // tp // pp},tp={tp},pp={pp},recompute=full,micro_batch_sequences={micro}"
                for tp, pp, micro in MEGATRON}
    return {f"Gr {rows}, Gc {columns}, Gd {depth}, Gdata {data}":
            f"dp={data},depth={depth}" + (f",tp={rows * columns}" if rows * columns > 1 else "") +
            (f",inner={columns}" if columns > 1 else "") +
            f",recompute=full,micro_batch_sequences={min(micro, sequences // (depth * data))}"
            for rows, columns, depth, data, micro in AXONN}


def share_of_peak(seconds, sequences):
    """With what is recomputed. That AxoNN counts so is an assumption."""
    return MODEL.flops(sequences) / seconds / RANKS / PEAK


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build" / "switchyard")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument("system", nargs="*", choices=[[], "megatron", "axonn"])
    options = parser.parse_args()
    systems = options.system or ["megatron", "axonn"]
    cases = [(system, name, text) for system in systems
             for name, text in strategies(system, options.sequences).items()]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda case: gpt_jobs.simulated(options.program, MODEL, case[2], options.sequences, RANKS,
                                                              CLUSTER), cases))
    print("| system | degrees | strategy | seconds a step | communication, of it hidden | share of the peak | fits |")
    print("|---|---|---|---|---|---|---|")
    best = {}
    for (system, name, text), f in zip(cases, found):
        seconds = f["step_seconds"]
        print(f"| {system} | {name} | `{text}` | {seconds:.1f} | "
              f"{f['communication_seconds']:.1f}, {f['overlap_seconds']:.1f} | "
              f"{100 * share_of_peak(seconds, options.sequences):.1f}% | {'yes' if f['fits'] else 'no'} |")
        if f["fits"]:
            best[system] = min(seconds, best.get(system, seconds))
    if best.keys() == {"megatron", "axonn"}:
        gain = best["megatron"] / best["axonn"]
        print(f"\nThe quickest that fit: {gain:.2f} times as quick; published {PUBLISHED_GAIN:.2f} "
              f"({100 * (gain / PUBLISHED_GAIN - 1):+.1f}%), at {100 * PUBLISHED_SHARE:.0f}% of the peak.")


if __name__ == "__main__":
    main()
