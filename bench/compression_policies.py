#!/usr/bin/env python3
"""Trains a small model under policies of compressed communication on emulated slow links, as a Markdown table.

    bench/compression_policies.py [--program build/switchyard] [--data data/python] [--steps 300] [--tokens 2048]
                                  [--cluster 4x1:100Mbit/s,1Gbit/s,2GiB] [--out FOLDER]

Four hosts of one device each train two replicas of a pipeline of two stages with ZeRO-3: gradients, activations and
gathered parameters all cross slow links. All policies have the same seed and the same documents. The loss is the mean
of the last tenth of the steps. DATA is the corpus that `make demo` prepares. Times are those of the emulated cluster
(docs/clusters.md); they hold the measured time of encoding and decoding. Writes compression.md to --out. Exit status 1:
the hybrid policy's loss is further than 0.5% from the one without codecs, or that of strong codecs everywhere is not.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from machine_jobs import ROOT, call

BOUND = 0.005
POLICIES = {
    "none": {},
    "lossless": {"gradients": "lossless", "pipeline": "lossless", "gathers": "lossless"},
    "hybrid": {"gradients": "int8", "pipeline": "bf16", "gathers": "bf16"},
    "largest": {"gradients": "top-1-of-32", "pipeline": "bf16", "gathers": "bf16"},
    "largest alone": {"gradients": "top-1-of-32", "error_feedback": "off", "pipeline": "bf16", "gathers": "bf16"},
    "strong everywhere": {"gradients": "int4", "pipeline": "zfp8", "gathers": "zfp8"},
}
JOB = """seed = 1

[model]
architecture = "llama"
hidden_size = 64
layers = 4
heads = 4
kv_heads = 2
ffn_size = 176
vocab_size = 8192

[data]
path = {data}
long_documents = "clip"

[batch]
tokens = {tokens}
context = 512

[[bucket]]
max_length = 512
strategy = "dp=2,pp=2,zero=3"

[optimizer]
lr = 3e-3
schedule = "constant"
warmup_steps = 20

[run]
ranks = 4
precision = "fp32"
emulate = {cluster}
save_last = false
trace_step = 0
"""


def trained(options, folder, codecs):
    """The log's steps."""
    folder.mkdir()
    table = "".join(f'{role} = "{codec}"\n' for role, codec in codecs.items())
    job = folder / "job.toml"
    job.write_text(JOB.format(data=json.dumps(os.path.abspath(options.data)), tokens=options.tokens,
                              cluster=json.dumps(options.cluster)) + f"\n[compression]\n{table}")
    call(options.program, "train", job, "--steps", options.steps, "--out", folder / "run")
    return [json.loads(line) for line in (folder / "run/log.jsonl").read_text().splitlines()]


def last_tenth(steps):
    last = steps[-max(1, len(steps) // 10):]
    return sum(step["loss"] for step in last) / len(last)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=os.path.abspath, default=str(ROOT / "build/switchyard"))
    parser.add_argument("--data", default=str(ROOT / "data/python"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--cluster", default="4x1:100Mbit/s,1Gbit/s,2GiB")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    return parser.parse_args()


def main():
    options = arguments()
    losses, rows = {}, ""
    with tempfile.TemporaryDirectory() as folder:
        for name, codecs in POLICIES.items():
            print(f"training with {name}", file=sys.stderr, flush=True)
            steps = trained(options, Path(folder) / name.replace(" ", "-"), codecs)
            losses[name] = last_tenth(steps)
            seconds = median([step["seconds"] for step in steps[1:]])
            tokens = median([step["tokens"] for step in steps[1:]])
            between = median([step["inter_bytes"] for step in steps[1:]])
            error = losses[name] / losses["none"] - 1
            said = ", ".join(f"{role} {codec}" for role, codec in codecs.items()) or "none"
            rows += (f"| {name} | {said} | {losses[name]:.4f} | {100 * error:+.2f}% | {between / 1e6:.2f} | "
                     f"{seconds:.3f} | {tokens / seconds:.0f} |\n")
    text = (f"# Policies of compressed communication\n\n"
            f"Command: `bench/compression_policies.py --steps {options.steps} --tokens {options.tokens} --cluster "
            f"{options.cluster}`, {datetime.date.today()}, {os.cpu_count()} cores.\n\n"
            "A LLaMA model of 4 layers, 64 wide, on the demo's corpus, fp32; two replicas of two stages with ZeRO-3\n"
            "on four hosts. Loss: mean of the last tenth of the steps. Times of steps are the emulated cluster's.\n\n"
            "| policy | codecs | loss | beside none | MB between hosts a step | seconds a step | tokens/s |\n"
            "|---|---|---|---|---|---|---|\n" + rows)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "compression.md").write_text(text)
    hybrid = abs(losses["hybrid"] / losses["none"] - 1)
    strong = losses["strong everywhere"] / losses["none"] - 1
    return hybrid > BOUND or strong <= BOUND


if __name__ == "__main__":
    sys.exit(main())
