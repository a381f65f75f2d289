#!/usr/bin/env python3
"""Compares measured steps of jobs with `switchyard simulate`, as a table in Markdown.

    bench/own_runs.py [--program build/switchyard] [--cluster TOOL | --cuda] [--only WORD]... [--rounds N]
                      [--profile FILE] [--settle SECONDS] [--out FOLDER]

Two ranks of one thread each, which don't share cores; with --cluster instead on hosts with slow links (TOOL up, launch,
down as for demo_on_hosts.py), at two rates; or with --cuda one rank on a GPU of about 80 GB. A round profiles the
machine with other jobs and then trains every job. Machines with several users change their speed by a fifth within
minutes, so the table compares the mean of the predictions with the median of the steps over all rounds. Memory is the
highest peak of any rank, predicted by the simulator and measured by the allocator. Writes own_runs.md and
own_runs.jsonl to --out, with --cluster runs_on_hosts.* and with --cuda gpu_runs.*. Exit status 1: the mean error is
above 4%, the worst above 10%, or memory is off by more than 5%.
"""

import datetime
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from machine_jobs import MIXED, ONE_GPU, STEPS, Machine, arguments_of, gpt2, job, model, write_job

ROUNDS = 3
RATES = [("100mbit", "800mbit"), ("400mbit", "2000mbit")]
MEAN_BOUND, WORST_BOUND, MEMORY_BOUND = 0.04, 0.10, 0.05

JOBS = {
    "dp 2, length 256": job("2,1,1", 256, 12),
    "dp 2, length 1024": job("2,1,1", 1024, 4),
    "dp 2, length 4096": job("2,1,1", 4096, 2, sizes=model(128)),
    "dp 2, length 8192": job("2,1,1", 8192, 2, sizes=model(128, 2)),
    "tp 2, length 256": job("1,2,1", 256, 12),
    "tp 2, length 1024": job("1,2,1", 1024, 4),
    "tp 2, length 4096": job("1,2,1", 4096, 1),
    "tp 2, length 8192": job("1,2,1", 8192, 1, sizes=model(128)),
    "pp 2, length 256, 4 micro-batches": job("1,1,2", 256, 32, micro_batch_tokens=2048),
    "pp 2, length 1024, 8 micro-batches": job("1,1,2", 1024, 8, micro_batch_tokens=1024),
    "pp 2, length 4096, 2 micro-batches": job("1,1,2", 4096, 2, sizes=model(128)),
    "pp 2, GPipe": job("1,1,2", 1024, 8, schedule="gpipe", micro_batch_tokens=1024),
    "pp 2, interleaved": job("1,1,2", 1024, 8, schedule="interleaved", chunks=2, micro_batch_tokens=1024),
    "pp 2, zero-bubble": job("1,1,2", 1024, 8, schedule="zero-bubble", micro_batch_tokens=1024),
    "pp 2, ZB-V": job("1,1,2", 1024, 8, schedule="zb-v", micro_batch_tokens=1024),
    "dp 2, selective recomputation": job("2,1,1", 2048, 2, recompute="selective"),
    "dp 2, full recomputation": job("2,1,1", 2048, 2, recompute="full"),
    "tp 2, full recomputation": job("1,2,1", 2048, 2, recompute="full"),
    "tp 2, keeping what is gathered": job("1,2,1", 1024, 4, recompute="none"),
    "tp 2, no sequence parallelism": job("1,2,1", 1024, 4, sequence_parallel=False),
    "dp 2, 4 micro-batches": job("2,1,1", 512, 16, micro_batch_tokens=1024),
    "tp 2, 8 micro-batches": job("1,2,1", 512, 16, micro_batch_tokens=1024),
    "dp 2, hidden 128": job("2,1,1", 1024, 6, sizes=model(128, 6)),
    "dp 2, hidden 320": job("2,1,1", 1024, 4, sizes=model(320, kv_heads=5)),
    "dp 2, hidden 640": job("2,1,1", 1024, 2, sizes=model(640, 3)),
    "tp 2, hidden 512": job("1,2,1", 1024, 2, sizes=model(512)),
    "pp 2, hidden 512": job("1,1,2", 512, 8, sizes=model(512), micro_batch_tokens=1024),
    "dp 2, 12 layers": job("2,1,1", 1024, 2, sizes=model(256, 12)),
    "dp 2, GPT-2": job("2,1,1", 1024, 4, sizes=gpt2(256)),
    "pp 2, GPT-2, stored scores": job("1,1,2", 512, 8, sizes=gpt2(256, attention="unfused"), micro_batch_tokens=1024),
    "dp 2, Qwen3": job("2,1,1", 1024, 4, sizes=model(256, architecture="qwen3", head_dim=64)),
    "dp 2, mixed lengths": job("2,1,1", MIXED, 12),
    "switching tp 2, dp 2": job([(4096, "1,2,1"), (1024, "2,1,1")], MIXED, 12),
    "switching pp 2, dp 2": job([(4096, "1,1,2"), (1024, "2,1,1")], MIXED, 12),
    "switching tp 2, pp 2, dp 2": job([(4096, "1,2,1"), (1024, "1,1,2"), (256, "2,1,1")], MIXED, 12),
    "ring 2, length 4096": job("ring=2", 4096, 1),
    "ring 2, length 8192": job("ring=2", 8192, 1, sizes=model(128)),
    "ring 2, keys in steps": job("ring=2,exchange=ring", 8192, 1, sizes=model(128)),
    "ring 2, a degree for each document": job("ring=2", MIXED, 12),
    "ring 2, one degree": job("ring=2,ring_degree=uniform", MIXED, 12),
    "ulysses 2, length 1024": job("ulysses=2", 1024, 4),
    "ulysses 2, length 4096": job("ulysses=2", 4096, 1),
    "inner 2, length 1024": job("tp=2,inner=2", 1024, 4),
    "depth 2, length 1024": job("depth=2", 1024, 4),
    "ZeRO-2, length 1024": job("dp=2,zero=2", 1024, 4),
    "ZeRO-3, 4 micro-batches": job("dp=2,zero=3", 512, 16, micro_batch_tokens=1024),
    "switching ring 2, dp 2": job([(4096, "ring=2"), (1024, "2,1,1")], MIXED, 12),
    "switching ulysses 2, pp 2, dp 2": job([(4096, "ulysses=2"), (1024, "1,1,2"), (256, "2,1,1")], MIXED, 12),
}
ON_HOSTS = {
    "dp 2": job("2,1,1", 1024, 8),
    "tp 2": job("1,2,1", 1024, 4),
    "tp 2, keeping what is gathered": job("1,2,1", 1024, 4, recompute="none"),
    "pp 2": job("1,1,2", 1024, 8, micro_batch_tokens=1024),
    "switching pp 2, dp 2": job([(4096, "1,1,2"), (1024, "2,1,1")], MIXED, 12),
    "ring 2": job("ring=2", 4096, 1),
    "ring 2, a degree for each document": job("ring=2", MIXED, 12),
    "ulysses 2": job("ulysses=2", 4096, 1),
    "ZeRO-3": job("dp=2,zero=3", 1024, 8),
    "switching ring 2, dp 2": job([(4096, "ring=2"), (1024, "2,1,1")], MIXED, 12),
}


def wide(hidden, layers, ffn, **settings):
    """A model for a GPU: heads of 128 features."""
    return {"hidden_size": hidden, "layers": layers, "heads": hidden // 128, "kv_heads": hidden // 128,
            "ffn_size": ffn, "vocab_size": 32000} | settings


def on_gpu(lengths, documents, sizes, micro_batch_tokens, **settings):
    return job("1,1,1", lengths, documents, sizes, ONE_GPU, micro_batch_tokens=micro_batch_tokens, **settings)


OF_7B, OF_1B, SMALL = wide(4096, 4, 11008), wide(2048, 16, 5504), wide(1024, 12, 2816)
LONG_TAIL = [32768] + 4 * [4096] + 32 * [512]
ON_A_GPU = {
    "7B width, length 4096": on_gpu(4096, 8, OF_7B, 8192),
    "7B width, length 32768": on_gpu(32768, 1, OF_7B, 32768),
    "7B width, a long tail": on_gpu(LONG_TAIL, 37, OF_7B, 32768),
    "7B width, length 1024, full recomputation": on_gpu(1024, 32, OF_7B, 8192, recompute="full"),
    "1B, length 4096": on_gpu(4096, 8, OF_1B, 16384),
    "1B, length 1000": on_gpu(1000, 32, OF_1B, 8192),
    "1B, length 7000": on_gpu(7000, 4, OF_1B, 7168),
    "heads that share keys, length 8192": on_gpu(8192, 4, wide(3072, 8, 8192, kv_heads=8), 8192),
    "small, length 512": on_gpu(512, 64, SMALL, 16384),
    "small, mixed lengths": on_gpu(MIXED, 48, SMALL, 8192),
    "small, Qwen3, length 2048": on_gpu(2048, 16, SMALL | {"architecture": "qwen3", "head_dim": 128}, 8192),
    "small, GPT-2, length 1024": on_gpu(1024, 32, gpt2(1024) | {"vocab_size": 32000, "layers": 12}, 8192),
}


class Comparison:
    """The results of a job in one place over all rounds."""

    def __init__(self, name, spec, rates):
        self.name, self.spec = name, spec
        self.where = (f"{rates[0]} between hosts" if rates else "one GPU" if "device" in spec["run"] else "one machine")
        self.predictions, self.runs, self.memory = [], [], 0

    def add(self, machine):
        path = write_job(machine.folder / self.name.replace(" ", "-").replace(",", ""), self.spec)
        self.predictions.append(machine.predicted(path))
        steps, peak = machine.measured(path)
        self.runs.append(steps)
        self.memory = max(self.memory, peak)

    def mean(self, key):
        return sum(prediction[key] for prediction in self.predictions) / len(self.predictions)

    def result(self):
        said = [sum(steps) / len(self.predictions)
                for steps in zip(*(prediction["seconds_of_steps"] for prediction in self.predictions))][1:]
        ratios = [seconds / expected for run in self.runs for seconds, expected in zip(run, said)]
        peak = max(max(prediction["peak_bytes"]) for prediction in self.predictions)
        return {"job": self.name, "where": self.where,
                "measured": median([seconds for run in self.runs for seconds in run]),
                "predicted": sum(said) / len(said), "error": 1 / median(ratios) - 1,
                "spread": max(ratios) / min(ratios) - 1, "memory": self.memory,
                "memory_error": peak / self.memory - 1, "idle": self.mean("idle_seconds"),
                "communication": self.mean("communication_seconds"),
                "of_rounds": [[sum(p["seconds_of_steps"][1:]) / (STEPS - 1), median(run)]
                              for p, run in zip(self.predictions, self.runs)]}


def row(result):
    return (f"| {result['job']} | {result['where']} | {result['measured']:.3f} | {100 * result['error']:+.1f}% | "
            f"{100 * result['spread']:.0f}% | "
            f"{result['memory'] / 2**20:.0f} | {100 * result['memory_error']:+.1f}% |")


HEAD = ("| job | on | s per step | predicted | spread of steps | MiB, rank with the highest peak | predicted |\n"
        "|---|---|---|---|---|---|---|")


def main():
    parser = arguments_of(__doc__, ROUNDS, "jobs")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--cluster", help="tool that makes hosts (default: this machine)")
    where.add_argument("--cuda", action="store_true", help="one rank on a GPU instead")
    arguments = parser.parse_args()
    chosen = lambda jobs: {name: spec for name, spec in jobs.items() if not arguments.only
                           or any(word in name for word in arguments.only)}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        places = [(None, chosen(ON_A_GPU if arguments.cuda else JOBS))]
        if arguments.cluster:
            places = [(rates, chosen(ON_HOSTS)) for rates in RATES]
        print(HEAD, flush=True)
        for place, (rates, jobs) in enumerate(places):
            comparisons = [Comparison(name, spec, rates) for name, spec in jobs.items()]
            for number in range(arguments.rounds if jobs else 0):
                with Machine(arguments, Path(folder) / f"{place}-{number}", rates, arguments.cuda) as machine:
                    for comparison in comparisons:
                        comparison.add(machine)
                        if number + 1 == arguments.rounds:
                            results.append(comparison.result())
                            print(row(results[-1]), flush=True)
    errors = [abs(result["error"]) for result in results]
    memory = max(abs(result["memory_error"]) for result in results)
    summary = (f"{len(results)} jobs: step time off by {100 * sum(errors) / len(errors):.1f}% on average, "
               f"{100 * max(errors):.1f}% at worst; "
               f"memory by {100 * memory:.1f}% at worst.")
    print(summary)
    if not arguments.only:
        arguments.out.mkdir(parents=True, exist_ok=True)
        kept = "gpu_runs" if arguments.cuda else "runs_on_hosts" if arguments.cluster else "own_runs"
        words = (f"bench/own_runs.py --rounds {arguments.rounds}" + (" --cluster TOOL" if arguments.cluster else "") +
                 (" --cuda" if arguments.cuda else ""))
        text = (f"# Jobs, measured and predicted\n\nCommand: `{words}`, {datetime.date.today().isoformat()}, "
                f"{os.cpu_count()} cores.\n\n{summary}\n\n{HEAD}\n")
        (arguments.out / f"{kept}.md").write_text(text + "".join(row(result) + "\n" for result in results))
        (arguments.out / f"{kept}.jsonl").write_text("".join(json.dumps(result) + "\n" for result in results))
    sys.exit(sum(errors) / len(errors) > MEAN_BOUND or max(errors) > WORST_BOUND or memory > MEMORY_BOUND)


if __name__ == "__main__":
    main()
