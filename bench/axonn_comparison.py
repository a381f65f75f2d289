#!/usr/bin/env python3
"""AxoNN's published comparison with Megatron-LM as `switchyard simulate` predicts it, in Markdown.

A GPT of 80B parameters on 1024 A100 of Perlmutter: AxoNN is 26% quicker than Megatron-LM and reaches 57% of the peak,
182 Pflop/s (S. Singh et al., arXiv 2305.13525, abstract). Each system is predicted with several strategies, of which
the quickest that fits its devices is compared.

    bench/axonn_comparison.py [--program build/switchyard] [--jobs 2] [--sequences 8192] [SYSTEM ...]
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS, PEAK = 1024, 312e12  # flop/s of a device in bf16
PUBLISHED_GAIN, PUBLISHED_SHARE = 1.26, 0.57  # gain: taken as the ratio of times
# axonn-ai/Megatron-AxoNN, commit 8a4ae24: the model is examples/launch_per_comm_model.py, "80B"; sequences, bf16, fused
# attention and full recomputation are examples/template_perlmutter.sh. The vocabulary is GPT-2's, padded.
LAYERS, HIDDEN, HEADS, VOCABULARY, CONTEXT = 42, 12288, 96, 51200, 2048
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


def simulated(program, strategy, sequences):
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.toml"
        job.write_text(f"""
[model]
architecture = "gpt2"
hidden_size = {HIDDEN}
layers = {LAYERS}
heads = {HEADS}
vocab_size = {VOCABULARY}
attention = "fused"
[batch]
sequences = {sequences}
context = {CONTEXT}
lengths = "full"
[[bucket]]
max_length = {CONTEXT}
strategy = "{strategy}"
[run]
ranks = {RANKS}
precision = "bf16"
""")
        cluster = ROOT / "bench" / "published" / "clusters" / "perlmutter.toml"
        done = subprocess.run([program, "simulate", job, "--cluster", cluster, "--json"], capture_output=True,
                              text=True)
    if not done.stdout:  # a job that does not fit has figures, too, and exit status 2
        raise SystemExit(f"{strategy}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def share_of_peak(seconds, sequences):
    """With what is recomputed: D. Narayanan et al., arXiv 2104.04473, section 5.1. That AxoNN counts so is an
    assumption."""
    flops = (96 * sequences * CONTEXT * LAYERS * HIDDEN**2 *
             (1 + CONTEXT / (6 * HIDDEN) + VOCABULARY / (16 * LAYERS * HIDDEN)))
    return flops / seconds / RANKS / PEAK


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
        found = list(pool.map(lambda case: simulated(options.program, case[2], options.sequences), cases))
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
