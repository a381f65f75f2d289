#!/usr/bin/env python3
"""Trains the demo's job in several ways in turns on test hosts with slow links, beside what is simulated, as Markdown.

    bench/ways_on_hosts.py TABLE --cluster TOOL [--program build/switchyard] [--data data/python] [--inter 100mbit]
                           [--intra 2gbit] [--cores 0.45] [--hosts 2] [--slots 2] [--rounds 2] [--steps 4]
                           [--tokens 8192] [--out FOLDER]

TABLE: zeropp (3-D parallelism, ZeRO-3, ZeroPP) or codecs (policies of compressed communication under one strategy; on
--hosts 4 --slots 1 all that it sends crosses).
TOOL, DATA and the job are those of bench/demo_on_hosts.py. The hosts are profiled over TCP. A run's time is that of its
median step, without the first, which touches fresh memory; a row has the median of the rounds, and beside the first
way the ratio of each round. error: of the simulated median step. Writes TABLE_on_hosts.md to --out. Exit status 1: the
losses of ways that lose nothing differ.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from compression_policies import POLICIES
from demo_on_hosts import add_hosts, hosts_of, profiled, write_job, write_page
from machine_jobs import call, seconds_of

# Its gradients, activations and parameters cross between hosts of one rank; between two hosts of two, activations do.
HYBRID = "dp=2,pp=2,zero=3"
TABLES = {
    "zeropp": ("ZeroPP beside 3-D parallelism and ZeRO-3 on test hosts",
               {name: (name, {}) for name in ("tp=2,pp=2", "dp=2,pp=2", "dp=2,tp=2", "dp=4,zero=3",
                                              "dp=2,pp=2,zero=3,every=2,schedule=zeropp,chunks=2",
                                              "dp=2,pp=2,zero=3,every=4,schedule=zeropp,chunks=2")}),
    "codecs": ("Policies of compressed communication on test hosts",
               {name: (HYBRID, codecs) for name, codecs in POLICIES.items()}),
}
LOSSLESS = ("none", "lossless")
CLOSE = 1e-4  # relative difference of losses, in fp32
HEAD = ("| way | seconds per step | tokens/s | the first one's seconds / these, each round | simulated, error | MB "
        "between hosts a step | loss of the last step |\n|---|---|---|---|---|---|---|\n")


def settings(codecs, ranks, tokens):
    keys = {"run.ranks": ranks, "batch.tokens": tokens}
    keys |= {f"compression.{role}": json.dumps(codec) for role, codec in codecs.items()}
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


class Way:
    def __init__(self, folder, name, strategy, codecs, arguments):
        self.name, self.lossless = name, not codecs or name in LOSSLESS
        self.path = write_job(folder, strategy, arguments.data)
        self.sets = settings(codecs, arguments.hosts * arguments.slots, arguments.tokens)
        self.seconds, self.log = [], []

    def train(self, program, launcher, steps):
        out = self.path.parent / "run"
        call(*launcher, program, "train", self.path, "--steps", steps, "--out", out, "--force",
             "--set=run.save_last=false", *self.sets)
        self.log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        self.seconds.append(median(seconds_of(self.log)[1:]))

    def row(self, first, program, profile, steps):
        said = call(program, "simulate", self.path, "--cluster", profile, "--steps", steps, "--json", *self.sets)
        simulated = median(json.loads(said.splitlines()[-1])["seconds_of_steps"][1:])
        seconds, tokens = median(self.seconds), median([entry["tokens"] for entry in self.log[1:]])
        between = median([entry["inter_bytes"] for entry in self.log[1:]])
        ratios = ", ".join(f"{theirs / mine:.2f}" for theirs, mine in zip(first.seconds, self.seconds))
        return (f"| {self.name} | {seconds:.2f} | {tokens / seconds:.0f} | {ratios} | {simulated:.2f}, "
                f"{100 * (simulated / seconds - 1):+.1f}% | {between / 1e6:.1f} | {self.log[-1]['loss']:.4f} |\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    add_hosts(parser, cores="0.45")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=8192, help="of a step")
    parser.set_defaults(inter="100mbit")
    arguments = parser.parse_args()
    title, ways = TABLES[arguments.table]
    with hosts_of(arguments) as launcher, tempfile.TemporaryDirectory() as folder:
        profile, links = profiled(arguments.program, launcher, Path(folder))
        all_ways = [Way(Path(folder) / str(number), name, strategy, codecs, arguments)
                    for number, (name, (strategy, codecs)) in enumerate(ways.items())]
        for _ in range(arguments.rounds):
            for way in all_ways:
                way.train(arguments.program, launcher, arguments.steps)
                print(f"{way.name}: {way.seconds[-1]:.2f} s per step", file=sys.stderr, flush=True)
        text = links + HEAD + "".join(way.row(all_ways[0], arguments.program, profile, arguments.steps)
                                      for way in all_ways)
    print(text)
    write_page(f"{arguments.table}_on_hosts", title, text, arguments,
               ["inter", "intra", "cores", "hosts", "slots", "rounds", "steps", "tokens"], "ways_on_hosts",
               arguments.table)
    losses = [way.log[-1]["loss"] for way in all_ways if way.lossless]
    return max(losses) / min(losses) - 1 > CLOSE


if __name__ == "__main__":
    sys.exit(main())
