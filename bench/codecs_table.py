#!/usr/bin/env python3
"""Rates of the codecs on one core, and message sizes from which each pays on links of several speeds, as Markdown.

    bench/codecs_table.py [--bench build/bench/codecs_bench] [--out FOLDER]

A codec pays from the smallest of the measured sizes on, from which the bytes that it saves take the link longer than
encoding and decoding take the processors: time counts as processor time, of fp32 elements. codecs_bench is built where
Google Benchmark is installed (libbenchmark-dev). Writes codecs.md to --out.
"""

import argparse
import datetime
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINKS = {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10, "25 Gbit/s": 2.5e10, "100 Gbit/s": 1e11}
LARGEST = 1 << 20
TEXT = """# Codecs

Command: `bench/codecs_table.py`, {date}, {cores} cores. Rates of one core, by processor time, in bytes of
fp32 elements before they are encoded; gradients that are normal numbers, in messages of 4 MiB.

| codec | bits of an element | GB/s encoded | GB/s decoded and added |
|---|---|---|---|
{rates}
Messages of these sizes and more gain by a codec on a link of such a speed, of the sizes 256 B, 1 KiB, 4 KiB, 16 KiB,
64 KiB and 4 MiB: the bytes saved take the link longer than encoding and decoding take. `compression.smallest` is 4 KiB
where a job does not say otherwise: below that codecs would pay, but a link of 1 Gbit/s takes less time for the bytes
than the latency between hosts, and what is small, such as weights of norms, stays exact.

| codec | {links} |
|{columns}
{breaks}"""


def size_text(size):
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


def break_even(sizes, link):
    """sizes: of a codec, (bytes, encoded bytes, seconds), rising."""
    pays = ""
    for size, encoded, seconds in sizes:
        if (size - encoded) / (link / 8) <= seconds:
            pays = ""
        elif not pays:
            pays = size_text(size)
    return pays or "never"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=str(ROOT / "build/bench/codecs_bench"))
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    options = parser.parse_args()
    said = subprocess.run([options.bench, "--benchmark_format=json", "--benchmark_min_time=0.05"], check=True,
                          capture_output=True, text=True).stdout
    measured = {}
    for run in json.loads(said)["benchmarks"]:
        what, _, elements = run["name"].split("/")
        codec = measured.setdefault(run["label"], {}).setdefault(int(elements), {})
        codec[what] = run["cpu_time"] * 1e-9
        codec["encoded"] = run["bits_per_element"] / 8 * int(elements)
    rates = breaks = ""
    for codec, sizes in measured.items():
        most = sizes[LARGEST]
        rates += (f"| {codec} | {most['encoded'] * 8 / LARGEST:.2f} | {4e-9 * LARGEST / most['encoding']:.2f} | "
                  f"{4e-9 * LARGEST / most['decoding_and_adding']:.2f} |\n")
        if codec != "none":
            rows = [(4 * n, one["encoded"], one["encoding"] + one["decoding_and_adding"])
                    for n, one in sorted(sizes.items())]
            breaks += f"| {codec} | " + " | ".join(break_even(rows, link) for link in LINKS.values()) + " |\n"
    text = TEXT.format(date=datetime.date.today(), cores=os.cpu_count(), rates=rates, links=" | ".join(LINKS),
                       columns="---|" * (len(LINKS) + 1), breaks=breaks)
    print(text)
    (options.out / "codecs.md").write_text(text)


if __name__ == "__main__":
    main()
