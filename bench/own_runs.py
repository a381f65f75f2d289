#!/usr/bin/env python3
"""Jobs as they were measured beside what `switchyard simulate` says of them: a table in Markdown.

    bench/own_runs.py [--program build/switchyard] [--cluster TOOL] [--only WORD]... [--profile FILE] [--out FOLDER]

Two ranks of one thread each, so that they don't share cores. The machine is profiled first, by jobs that are none of these; with --cluster
also hosts that slow links connect (TOOL up, run, down as for bench/hosts), at two rates. Every job trains --runs times; its error is the
median of its steps', for machines that others use, too, are slow for seconds at a time. Memory is the fullest rank's,
predicted by the simulator, measured by the allocator. Writes own_runs.md and own_runs.jsonl to --out. Exit status 1: the mean error is above
4%, the worst above 10%, or memory is off by more than 5%.
"""

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
from switchyard_data.indexed import IndexedWriter  # noqa: E402

VOCAB = 4096
RANKS, RUNS, STEPS = 2, 2, 5
RATES = [("100mbit", "800mbit"), ("400mbit", "2000mbit")]
NAME = "own_runs"
MEAN_BOUND, WORST_BOUND, MEMORY_BOUND = 0.04, 0.10, 0.05


def model(hidden, layers=4, **settings):
    return {"hidden_size": hidden, "layers": layers, "heads": hidden // 64, "kv_heads": max(1, hidden // 128), "ffn_size": hidden * 11 // 4,
            "vocab_size": VOCAB} | settings


def gpt2(hidden, **settings):
    return {"architecture": "gpt2", "hidden_size": hidden, "layers": 4, "heads": hidden // 64, "ffn_size": 4 * hidden, "vocab_size": VOCAB,
            "max_positions": 8192} | settings


def job(strategy, lengths, documents, sizes=None, **settings):
    """lengths: of all documents, or a list to draw from. strategy: of one bucket, or (max_length, strategy) from the longest down."""
    buckets = strategy if isinstance(strategy, list) else [(max(lengths) if isinstance(lengths, list) else lengths, strategy)]
    return {"model": sizes or model(256), "lengths": lengths, "documents": documents, "buckets": buckets, "parallel": settings}


MIXED = [256, 256, 256, 256, 512, 512, 1024, 4096]
JOBS = {
    "dp 2, length 256": job("2,1,1", 256, 24),
    "dp 2, length 1024": job("2,1,1", 1024, 6),
    "dp 2, length 4096": job("2,1,1", 4096, 2, sizes=model(128)),
    "dp 2, length 8192": job("2,1,1", 8192, 2, sizes=model(128, 2)),
    "tp 2, length 256": job("1,2,1", 256, 24),
    "tp 2, length 1024": job("1,2,1", 1024, 6),
    "tp 2, length 4096": job("1,2,1", 4096, 1),
    "tp 2, length 8192": job("1,2,1", 8192, 1, sizes=model(128)),
    "pp 2, length 256, 4 micro-batches": job("1,1,2", 256, 32, micro_batch_tokens=2048),
    "pp 2, length 1024, 8 micro-batches": job("1,1,2", 1024, 8, micro_batch_tokens=1024),
    "pp 2, length 4096, 2 micro-batches": job("1,1,2", 4096, 2, sizes=model(128)),
    "pp 2, GPipe": job("1,1,2", 1024, 8, schedule="gpipe", micro_batch_tokens=1024),
    "pp 2, interleaved": job("1,1,2", 1024, 8, schedule="interleaved", chunks=2, micro_batch_tokens=1024),
    "pp 2, zero-bubble": job("1,1,2", 1024, 8, schedule="zero-bubble", micro_batch_tokens=1024),
    "pp 2, ZB-V": job("1,1,2", 1024, 8, schedule="zb-v", micro_batch_tokens=1024),
    "dp 2, selective recomputation": job("2,1,1", 2048, 4, recompute="selective"),
    "dp 2, full recomputation": job("2,1,1", 2048, 4, recompute="full"),
    "tp 2, full recomputation": job("1,2,1", 2048, 4, recompute="full"),
    "tp 2, no sequence parallelism": job("1,2,1", 1024, 8, sequence_parallel=False),
    "dp 2, 4 micro-batches": job("2,1,1", 512, 16, micro_batch_tokens=1024),
    "tp 2, 8 micro-batches": job("1,2,1", 512, 16, micro_batch_tokens=1024),
    "dp 2, hidden 128": job("2,1,1", 1024, 8, sizes=model(128, 6)),
    "dp 2, hidden 320": job("2,1,1", 1024, 8, sizes=model(320)),
    "dp 2, hidden 640": job("2,1,1", 1024, 4, sizes=model(640, 3)),
    "tp 2, hidden 512": job("1,2,1", 1024, 4, sizes=model(512)),
    "pp 2, hidden 512": job("1,1,2", 512, 8, sizes=model(512), micro_batch_tokens=1024),
    "dp 2, 12 layers": job("2,1,1", 1024, 4, sizes=model(256, 12)),
    "dp 2, GPT-2": job("2,1,1", 1024, 8, sizes=gpt2(256)),
    "pp 2, GPT-2, stored scores": job("1,1,2", 512, 8, sizes=gpt2(256, attention="unfused"), micro_batch_tokens=1024),
    "dp 2, Qwen3": job("2,1,1", 1024, 8, sizes=model(256, architecture="qwen3", head_dim=64)),
    "dp 2, mixed lengths": job("2,1,1", MIXED, 12),
    "switching tp 2, dp 2": job([(4096, "1,2,1"), (1024, "2,1,1")], MIXED, 12),
    "switching pp 2, dp 2": job([(4096, "1,1,2"), (1024, "2,1,1")], MIXED, 12),
    "switching tp 2, pp 2, dp 2": job([(4096, "1,2,1"), (1024, "1,1,2"), (256, "2,1,1")], MIXED, 12),
}
ON_HOSTS = {
    "dp 2": job("2,1,1", 1024, 8),
    "tp 2": job("1,2,1", 1024, 4),
    "pp 2": job("1,1,2", 1024, 8, micro_batch_tokens=1024),
    "switching pp 2, dp 2": job([(4096, "1,1,2"), (1024, "2,1,1")], MIXED, 12),
}


def toml(value):
    return json.dumps(value)


def write_job(folder, spec):
    """The job file, its corpus beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    lengths = spec["lengths"] if isinstance(spec["lengths"], list) else [spec["lengths"]]
    writer = IndexedWriter(folder / "corpus.bin", VOCAB)
    for i in range(max(64, spec["documents"])):
        writer.add([draw.randrange(VOCAB) for _ in range(lengths[i % len(lengths)])])
    writer.close()
    writer.write_index(folder / "corpus.idx")
    longest = max(lengths)
    sections = {"model": spec["model"], "data": {"path": str(folder)}, "batch": {"sequences": spec["documents"], "context": longest},
                "parallel": spec["parallel"], "run": {"steps": STEPS, "ranks": RANKS, "threads": 1, "precision": "fp32"}}
    lines = ["seed = 1"]
    for section, keys in sections.items():
        lines += [f"[{section}]"] + [f"{key} = {toml(value)}" for key, value in keys.items()]
    for length, strategy in spec["buckets"]:
        lines += ["[[bucket]]", f"max_length = {length}", f'strategy = "{strategy}"']
    path = folder / "job.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def call(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"own_runs: {' '.join(map(str, words))} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


class Machine:
    """Where jobs run: this machine's threads, or hosts of the tool."""

    def __init__(self, arguments, folder, rates=None):
        self.arguments, self.folder, self.rates = arguments, folder, rates
        self.launcher = []
        if rates:
            self.launcher = [arguments.cluster, "run", "--name", NAME, "-n", RANKS, "--mca", "mpi_yield_when_idle", "1", "--"]

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.rates:
            call(self.arguments.cluster, "up", "--name", NAME, "--hosts", RANKS, "--slots", 1, "--inter", self.rates[0], "--intra", self.rates[1])
        self.profile = self.arguments.profile if self.arguments.profile and not self.rates else self.folder / "profile.json"
        if self.profile == self.folder / "profile.json":
            words = [self.arguments.program, "profile", "--threads", 1, "--out", self.profile]
            call(*self.launcher, *words, *([] if self.rates else ["--ranks", RANKS]))
        return self

    def __exit__(self, *_):
        if self.rates:
            call(self.arguments.cluster, "down", "--name", NAME)

    def measured(self, path, number):
        """Seconds of each step and bytes of the fullest rank."""
        out = path.parent / f"run{number}"
        call(*self.launcher, self.arguments.program, "train", path, "--out", out, env=os.environ | {"OMP_WAIT_POLICY": "passive"})
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        return [entry["tokens"] / entry["tokens_per_second"] for entry in log], max(max(entry["peak_bytes_per_rank"]) for entry in log)

    def predicted(self, path):
        said = call(self.arguments.program, "simulate", path, "--cluster", self.profile, "--steps", STEPS, "--json")
        return json.loads(said.splitlines()[-1])


def median(values):
    return sorted(values)[len(values) // 2]


def compared(machine, name, spec):
    path = write_job(machine.folder / name.replace(" ", "-").replace(",", ""), spec)
    predicted = machine.predicted(path)
    ratios, seconds, memory = [], [], 0
    for number in range(machine.arguments.runs):
        steps, peak = machine.measured(path, number)
        memory = max(memory, peak)
        for measured, said in list(zip(steps, predicted["seconds_of_steps"]))[1:]:  # the first step warms up
            ratios.append(measured / said)
            seconds.append(measured)
    where = f"{machine.rates[0]} between hosts" if machine.rates else "one machine"
    return {"job": name, "where": where, "measured": median(seconds), "predicted": sum(predicted["seconds_of_steps"][1:]) / (STEPS - 1),
            "error": 1 / median(ratios) - 1, "spread": max(ratios) / min(ratios) - 1, "memory": memory,
            "memory_error": max(predicted["peak_bytes"]) / memory - 1, "idle": predicted["idle_seconds"],
            "communication": predicted["communication_seconds"]}


def row(result):
    return (f"| {result['job']} | {result['where']} | {result['measured']:.3f} | {100 * result['error']:+.1f}% | {100 * result['spread']:.0f}% | "
            f"{result['memory'] / 2**20:.0f} | {100 * result['memory_error']:+.1f}% |")


HEAD = "| job | on | s per step | predicted | spread of steps | MiB, fullest rank | predicted |\n|---|---|---|---|---|---|---|"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=os.path.abspath, default=str(ROOT / "build/switchyard"))
    parser.add_argument("--cluster", help="tool that makes hosts; without it only this machine")
    parser.add_argument("--only", action="append", default=[], help="jobs whose names have this word")
    parser.add_argument("--profile", type=Path, help="of this machine, instead of a fresh one")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    chosen = lambda jobs: {name: spec for name, spec in jobs.items() if not arguments.only or any(word in name for word in arguments.only)}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        places = [(None, chosen(JOBS))] + [(rates, chosen(ON_HOSTS)) for rates in RATES if arguments.cluster]
        print(HEAD, flush=True)
        for number, (rates, jobs) in enumerate(places):
            if not jobs:
                continue
            with Machine(arguments, Path(folder) / str(number), rates) as machine:
                for name, spec in jobs.items():
                    results.append(compared(machine, name, spec))
                    print(row(results[-1]), flush=True)
    errors = [abs(result["error"]) for result in results]
    memory = max(abs(result["memory_error"]) for result in results)
    summary = (f"{len(results)} jobs: step time off by {100 * sum(errors) / len(errors):.1f}% on average, {100 * max(errors):.1f}% at worst; "
               f"memory by {100 * memory:.1f}% at worst.")
    print(summary)
    if not arguments.only:
        arguments.out.mkdir(parents=True, exist_ok=True)
        words = "bench/own_runs.py" + (" --cluster TOOL" if arguments.cluster else "")
        text = f"# Jobs as measured and as predicted\n\nCommand: `{words}`, {datetime.date.today().isoformat()}, {os.cpu_count()} cores.\n\n{summary}\n\n{HEAD}\n"
        (arguments.out / "own_runs.md").write_text(text + "".join(row(result) + "\n" for result in results))
        (arguments.out / "own_runs.jsonl").write_text("".join(json.dumps(result) + "\n" for result in results))
    sys.exit(sum(errors) / len(errors) > MEAN_BOUND or max(errors) > WORST_BOUND or memory > MEMORY_BOUND)


if __name__ == "__main__":
    main()
