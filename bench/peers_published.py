#!/usr/bin/env python3
"""Simulates published settings of systems with a degree of context parallelism for each document, as Markdown.

    bench/peers_published.py [--program build/switchyard] [--seconds 20] [--jobs 2] [SYSTEM ...]

Each file of bench/peers is a system: where its settings are from, what had to be assumed, and cases. A case has the
strategies that stand for the published baseline, of which the quickest that fits is taken, and ring strategies, whose
degree is chosen for each document. Both are timed by `switchyard simulate` on the same documents; so is the plan that
`switchyard plan` finds with all freedom. The bound is what the quickest of all of these computes on average over the
devices: without any communication and waiting its step would take as long.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import re
import statistics
import tempfile
import tomllib

from simulations import DOCUMENTS, ROOT, Simulations, bins_up_to, quickest


def systems():
    return sorted(path.stem for path in (ROOT / "bench" / "peers").glob("*.toml"))


def log_normal(mean, sigma, shortest, longest):
    """[[lo, hi, count]]: a log-normal distribution with this mean, whose values are cut to a range."""
    normal = statistics.NormalDist(math.log(mean) - sigma**2 / 2, sigma)
    octaves = math.log2(longest / shortest)
    edges = [round(shortest * 2 ** (quarter / 4)) for quarter in range(round(4 * octaves) + 1)]
    below = [0, *(normal.cdf(math.log(edge)) for edge in edges[1:])]
    bins = [[lo, hi, round(DOCUMENTS * (b - a))] for lo, hi, a, b in zip(edges, edges[1:], below, below[1:])]
    return [*bins, [longest, longest + 1, DOCUMENTS - sum(count for *_, count in bins)]]


def bins_of(case):
    """Bins of a model of tools/lengths.py, or of a log-normal distribution."""
    shape, context = case["lengths"], case["context"]
    if isinstance(shape, str):
        return bins_up_to(shape, context)
    return log_normal(shape["mean"], shape["sigma"], shape["shortest"], context)


def cluster_file(case, folder):
    """The shipped cluster's file, with the values that the case replaces, such as memory = "40 GB"."""
    text = (ROOT / "clusters" / f"{case['cluster']}.toml").read_text()
    for key, value in case.get("replace", {}).items():
        section, _, name = key.rpartition(".")
        start = text.index(f"[{section}]") if section else 0
        line = f"{name} = {json.dumps(value)}"
        text = text[:start] + re.sub(rf"^{name} = .*$", line, text[start:], count=1, flags=re.M)
    path = folder / "cluster.toml"
    path.write_text(text)
    return path


def job_text(case):
    model = "\n".join(f"{key} = {json.dumps(value)}" for key, value in case["model"].items())
    return f"""
[model]
{model}
[batch]
context = {case["context"]}
sequences = {case["documents"]}
lengths = "lengths.json"
[run]
ranks = {case["gpus"]}
precision = "bf16"
"""


def simulations_of(program, case, folder, seconds):
    cluster = f"{cluster_file(case, folder)}:{case['gpus'] // case['per_host']}x{case['per_host']}"
    return Simulations(program, folder, job_text(case), bins_of(case), cluster, seconds)


def evaluate(program, case, seconds):
    with tempfile.TemporaryDirectory() as folder:
        simulations = simulations_of(program, case, pathlib.Path(folder), seconds)
        baseline = quickest([simulations.of(strategy) for strategy in case["baseline"]])
        rings = {degree: quickest([simulations.of(f"{strategy},ring_degree={degree}") for strategy in case["ring"]])
                 for degree in ("uniform", "document")}
        return {"baseline": baseline, **rings, "plan": simulations.planned()}


def cell(figures):
    return f"{figures['step_seconds']:.4g}" if figures else "does not fit"


def gain(baseline, figures):
    return f"{baseline['step_seconds'] / figures['step_seconds']:.2f}" if baseline and figures else ""


def row_of(case, found):
    best = quickest([one for one in found.values() if one])
    bound = f"{found['baseline']['step_seconds'] / best['compute_seconds']:.2f}" if found["baseline"] else ""
    gains = [gain(found["baseline"], found[what]) for what in ("document", "plan")]
    cells = [case["name"], case["published"], *(cell(one) for one in found.values()), *gains, bound]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build" / "switchyard")
    parser.add_argument("--seconds", type=float, default=20, help="of the planner's search")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("system", nargs="*", choices=[[], *systems()])
    options = parser.parse_args()
    tables = {name: tomllib.loads((ROOT / "bench" / "peers" / f"{name}.toml").read_text())
              for name in options.system or systems()}
    cases = [(name, table["defaults"] | case) for name, table in tables.items() for case in table["case"]]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda one: evaluate(options.program, one[1], options.seconds), cases))
    for name, table in tables.items():
        print(f"\n## {table['title']}\n\n{table['where']}\n\nAssumed: {table['assumed']}\n")
        print("| case | published gain | baseline, s | ring, one degree, s | ring, by document, s | plan, s "
              "| gain by document | gain of the plan | bound |\n|---|---|---|---|---|---|---|---|---|")
        own = [(case, figures) for (of, case), figures in zip(cases, found) if of == name]
        for case, figures in own:
            print(row_of(case, figures))
        print()
        for case, figures in own:
            chosen = "; ".join(f"{what}: `{one['strategy']}`" for what, one in figures.items() if one)
            print(f"- {case['name']}: {chosen}")


if __name__ == "__main__":
    main()
