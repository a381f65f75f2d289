#!/usr/bin/env python3
"""Published training steps beside what `switchyard simulate` says of them: a table in Markdown.

Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, arXiv 2205.05198: GPT models under Megatron-LM on A100-80G,
sequences of 2048, vocabulary 51200. Seconds are those of Table 5 and, for 8 replicas of 530b, of section 6.3; memory is what the equations of section 4 give, in steady state. The
cluster file's largest share of matmul was fitted to the times of one layer (Table 4), not to these steps.

    bench/published_runs.py [PROGRAM]          (default build/switchyard)
"""

import json
import pathlib
import subprocess
import sys
import tempfile

# layers, hidden, heads, strategy, ranks, sequences
MODELS = {"22b": (48, 6144, 64, "dp = 1, pp = 1, micro_batch_sequences = 4", 8, 4),
          "175b": (96, 12288, 96, 'dp = 1, pp = 8, schedule = "interleaved", chunks = 3, micro_batch_sequences = 1', 64, 64),
          "530b": (105, 20480, 128, 'dp = 1, pp = 35, schedule = "interleaved", chunks = 3, micro_batch_sequences = 1', 280, 280),
          "530b, 8 replicas": (105, 20480, 128, 'dp = 8, pp = 35, schedule = "interleaved", chunks = 3, micro_batch_sequences = 1', 2240, 2240),
          "1t": (128, 25600, 160, "dp = 1, pp = 64, micro_batch_sequences = 1", 512, 512)}
SETTINGS = {"none": ("none", "false"), "full": ("full", "false"), "sel": ("selective", "true")}  # recompute, sequence_parallel
SECONDS = {("22b", "full"): 1.42, ("22b", "sel"): 1.10, ("175b", "full"): 18.13, ("175b", "sel"): 13.75, ("530b", "full"): 49.05,
           ("530b", "sel"): 37.83, ("530b, 8 replicas", "sel"): 39.15, ("1t", "full"): 94.42, ("1t", "sel"): 71.49}
ACTIVATIONS = {("22b", "none"): 59.25, ("22b", "sel"): 9.56, ("175b", "none"): 66.84, ("175b", "sel"): 12.35}  # GiB, fullest rank


def job_of(model, setting):
    layers, hidden, heads, strategy, ranks, sequences = MODELS[model]
    recompute, sequence_parallel = SETTINGS[setting]
    return f"""
[model]
architecture = "gpt2"
hidden_size = {hidden}
layers = {layers}
heads = {heads}
vocab_size = 51200
attention = "unfused"
[batch]
sequences = {sequences}
context = 2048
lengths = "full"
[[bucket]]
max_length = 2048
strategy = {{tp = 8, {strategy}, recompute = "{recompute}", sequence_parallel = {sequence_parallel}, zero = 0}}
[run]
ranks = {ranks}
precision = "bf16"
"""


def simulated(program, model, setting):
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.toml"
        job.write_text(job_of(model, setting))
        done = subprocess.run([program, "simulate", job, "--cluster", "a100-80g", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def cell(found, published, unit):
    return f"{found:.2f} of {published:.2f} {unit} ({100 * (found / published - 1):+.1f}%)" if published else ""


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/switchyard"
    print("| model | recomputation | seconds a step, simulated of published | activations, simulated of published |\n|---|---|---|---|")
    for model, setting in sorted(SECONDS.keys() | ACTIVATIONS.keys(), key=lambda c: (list(MODELS).index(c[0]), c[1])):
        found = simulated(program, model, setting)
        print(f"| {model} | {setting} | {cell(found['step_seconds'], SECONDS.get((model, setting)), 's')} | "
              f"{cell(max(found['activation_bytes']) / 2**30, ACTIVATIONS.get((model, setting)), 'GiB')} |", flush=True)


if __name__ == "__main__":
    main()
