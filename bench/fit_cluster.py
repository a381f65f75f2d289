#!/usr/bin/env python3
"""Fits a few constants of a cluster file to the calibration rows of published sources.

Prints the values within bounds that minimize the mean squared relative error, and the errors of those rows.

    bench/fit_cluster.py [--program build/switchyard] [--jobs 2] [--rounds 3] CLUSTER SOURCE KEY:LOW:HIGH ...
    bench/fit_cluster.py bench/published/clusters/jean-zay.toml bigscience device.host_launch:0:5e-4 \\
                         links.inter_host.curve:0.1:1

SOURCE is a file of bench/published. KEY is a number of seconds, a curve whose shares are multiplied by a factor, or the
share of one point of a curve (device.bf16.matmul_curve.5.1 is that of its sixth point). Times are linear in a factor's
reciprocal, which is what is fitted. The search starts in the middle. Constants are set in the order in which they are
given.
"""

import argparse
import concurrent.futures
import copy
import json
import pathlib
import tempfile
import tomllib

import numpy as np
import published_runs as published

STEP = 0.05  # for derivatives, as a share of the range


def toml_of(table, prefix=""):
    plain = "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items() if not isinstance(value, dict))
    return plain + "".join(f"[{prefix}{key}]\n{toml_of(value, f'{prefix}{key}.')}" for key, value in table.items()
                           if isinstance(value, dict))


def is_curve(key):
    return key.endswith("curve")


def changed(table, values):
    table = copy.deepcopy(table)
    for key, value in values.items():
        *path, last = (int(part) if part.isdigit() else part for part in key.split("."))
        section = table
        for part in path:
            section = section[part]
        section[last] = [[size, min(1, share / value)] for size, share in section[last]] if is_curve(key) else value
    return table


def errors(program, table, cases, jobs):
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        cluster = pathlib.Path(folder) / "cluster.toml"
        cluster.write_text(toml_of(table))
        return np.array(list(pool.map(lambda row: published.time_error(row, published.simulated(program, cluster, row)),
                                      cases)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=published.ROOT / "build" / "switchyard")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("cluster", type=pathlib.Path)
    parser.add_argument("source", choices=published.sources())
    parser.add_argument("constant", nargs="+")
    options = parser.parse_args()
    table = tomllib.loads(options.cluster.read_text())
    cases = [row for row in published.source(options.source)["run"] if row["use"] == "calibration"
             and published.seconds_of(row)]
    keys, low, high = zip(*((key, float(a), float(b)) for key, a, b in (text.split(":") for text in options.constant)))
    low, high = np.array([(1 / b, 1 / a) if is_curve(key) else (a, b) for key, a, b in zip(keys, low, high)]).T

    def at(x):
        return errors(options.program, changed(table, dict(zip(keys, x))), cases, options.jobs)

    # Gauss-Newton steps; a constant that leaves its range is set to the bound.
    x = (low + high) / 2
    here = at(x)
    for _ in range(options.rounds):
        width = STEP * (high - low)
        slopes = np.stack([(at(x + step) - here) / step.sum() for step in np.diag(width)], axis=1)
        free, target = np.full(len(x), True), x.copy()
        while free.any():
            move, *_ = np.linalg.lstsq(slopes[:, free], -(here + slopes[:, ~free] @ (target - x)[~free]), rcond=None)
            target[free] = x[free] + move
            outside = free & ((target < low) | (target > high))
            target = np.clip(target, low, high)
            if not outside.any():
                break
            free &= ~outside
        x, here = target, at(target)
        print({key: float(f"{1 / value if is_curve(key) else value:.4g}") for key, value in zip(keys, x)},
              f"mean {100 * abs(here).mean():.2f}%, worst {100 * abs(here).max():.2f}%")
    for row, error in zip(cases, here):
        print(f"{row['name']}: {100 * error:+.1f}%")


if __name__ == "__main__":
    main()
