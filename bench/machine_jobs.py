"""Writes, trains and times jobs of two ranks with one thread each, or of one GPU, for the scripts of this folder."""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
from switchyard_data.indexed import IndexedWriter  # noqa: E402

VOCAB = 4096
RANKS, STEPS = 2, 5
HOSTS = "switchyard"  # the test hosts' name
TWO_THREADS = {"ranks": RANKS, "threads": 1, "precision": "fp32"}
ONE_GPU = {"ranks": 1, "device": "cuda", "precision": "bf16"}


def arguments_of(description, rounds, what):
    """The parser of a script that measures jobs. what: name of the rows of its table."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=os.path.abspath, default=str(ROOT / "build/switchyard"))
    parser.add_argument("--only", action="append", default=[], help=f"only {what} whose names contain this word")
    parser.add_argument("--profile", type=Path, help="profile of this machine, instead of a fresh one")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--settle", type=float, default=30, metavar="SECONDS",
                        help="pause after a profile, because jobs right after one were up to a fifth slower in their "
                             "first steps")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    return parser


def model(hidden, layers=4, **settings):
    return {"hidden_size": hidden, "layers": layers, "heads": hidden // 64, "kv_heads": max(1, hidden // 128),
            "ffn_size": hidden * 11 // 4,
            "vocab_size": VOCAB} | settings


def gpt2(hidden, **settings):
    return {"architecture": "gpt2", "hidden_size": hidden, "layers": 4, "heads": hidden // 64,
            "ffn_size": 4 * hidden, "vocab_size": VOCAB,
            "max_positions": 8192} | settings


def job(strategy, lengths, documents, sizes=None, run=None, **settings):
    """lengths: of all documents, or a list to draw from. strategy: of one bucket, or a list of (max_length, strategy),
    the longest first. run: keys of [run], TWO_THREADS if there are none."""
    buckets = (strategy if isinstance(strategy, list)
               else [(max(lengths) if isinstance(lengths, list) else lengths, strategy)])
    return {"model": sizes or model(256), "lengths": lengths, "documents": documents, "buckets": buckets,
            "parallel": settings, "run": run or TWO_THREADS}


MIXED = [256, 256, 256, 256, 512, 512, 1024, 4096]


def toml(value):
    return json.dumps(value)


def write_job(folder, spec):
    """Writes the job file and its corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    lengths = spec["lengths"] if isinstance(spec["lengths"], list) else [spec["lengths"]]
    writer = IndexedWriter(folder, VOCAB)
    for i in range(max(64, spec["documents"])):
        writer.add([draw.randrange(VOCAB) for _ in range(lengths[i % len(lengths)])])
    writer.finish()
    longest = max(lengths)
    sections = {"model": spec["model"], "data": {"path": str(folder)},
                "batch": {"sequences": spec["documents"], "context": longest},
                "parallel": spec["parallel"], "run": {"steps": STEPS} | spec["run"]}
    lines = ["seed = 1"]
    for section, keys in sections.items():
        lines += [f"[{section}]"] + [f"{key} = {toml(value)}" for key, value in keys.items()]
    for length, strategy in spec["buckets"]:  # none: the planner chooses
        lines += ["[[bucket]]", f"max_length = {length}", f'strategy = "{strategy}"']
    path = folder / "job.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def call(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0 and not (words[1:2] == ("simulate",) and done.stdout):  # status 2: it does not fit
        sys.exit(f"{Path(sys.argv[0]).stem}: {' '.join(map(str, words))} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def launcher_on_hosts(tool, seconds=900):
    """The command that starts a program as a process for each rank on the test hosts, with what torchrun would tell
    them. Ranks connect to the data address of rank 0, so that their data uses the limited links."""
    return [tool, "launch", "--name", HOSTS, "--timeout", seconds, "--", "env", "MASTER_ADDR=10.213.0.1",
            "OMP_WAIT_POLICY=passive"]


class Machine:
    """The place where jobs run: this machine's threads or its GPU, or hosts of the tool."""

    def __init__(self, arguments, folder, rates=None, cuda=False):
        self.arguments, self.folder, self.rates, self.cuda = arguments, folder, rates, cuda
        self.launcher = launcher_on_hosts(arguments.cluster) if rates else []

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.rates:
            call(self.arguments.cluster, "up", "--name", HOSTS, "--hosts", RANKS, "--slots", 1,
                 "--inter", self.rates[0], "--intra", self.rates[1])
        self.profile = (self.arguments.profile if self.arguments.profile and not self.rates
                        else self.folder / "profile.json")
        if self.profile == self.folder / "profile.json":
            call(*self.launcher, self.arguments.program, "profile", *self.measured_by(), "--out", self.profile)
            time.sleep(self.arguments.settle)
        return self

    def __exit__(self, *_):
        if self.rates:
            call(self.arguments.cluster, "down", "--name", HOSTS)

    def measured_by(self):
        if self.cuda:
            return ["--cuda", "--ranks", 1, "--precision", "bf16", "--head-dim", 128]
        return ["--threads", 1, *([] if self.rates else ["--ranks", RANKS])]

    def measured(self, path):
        """Seconds of each step except the first, which warms up, and the highest peak of any rank in bytes."""
        out = path.parent / "run"
        call(*self.launcher, self.arguments.program, "train", path, "--out", out, "--force",
             "--set=run.save_last=false", "--set", f'run.profile="{self.profile}"',
             env=os.environ | {"OMP_WAIT_POLICY": "passive"})
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()][1:]
        return seconds_of(log), max(max(entry["peak_bytes_per_rank"]) for entry in log)

    def predicted(self, path):
        said = call(self.arguments.program, "simulate", path, "--cluster", self.profile, "--steps", STEPS, "--json")
        return json.loads(said.splitlines()[-1])


def seconds_of(log):
    return [entry["tokens"] / entry["tokens_per_second"] for entry in log]
