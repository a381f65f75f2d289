#!/usr/bin/env python3
"""Compares published training steps with `switchyard simulate`, as tables in Markdown.

Each file of bench/published is a source. It has the rows whose settings are complete and can be expressed as
strategies. Cluster files were fitted only to rows of use "calibration": those of clusters/ to whole sources; those of
bench/published/clusters, each of which describes the system of one source, to some of its rows (bench/fit_cluster.py).

    bench/published_runs.py [--program build/switchyard] [--clusters clusters] [--jobs 2] [SOURCE ...]
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import pathlib
import statistics
import subprocess
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORST_ERROR = 0.12  # goal for a test row
NEIGHBOURS = 3  # the least rows that have a median
USES = ("calibration", "test", "contradicted")


@functools.cache
def tables():
    """name -> title, where, cluster, use, notes; run: rows with the defaults filled in."""
    usual = {"dp": 1, "tp": 1, "pp": 1, "micro_batch": 1, "architecture": "gpt2", "recompute": "gathers",
             "schedule": "1f1b", "overlap": True, "layer_copies": 0, "other_copies": 0}
    found = {name: tomllib.loads((ROOT / "bench" / "published" / f"{name}.toml").read_text()) for name in sources()}
    return {name: table | {"run": [usual | table["defaults"] | row for row in table["run"]]}
            for name, table in found.items()}


@functools.cache
def usual_seconds(cluster):
    """Median time of the runs of a system that share what decides a step's work: layers, width, degrees, sequences."""
    groups = collections.defaultdict(list)
    for table in tables().values():
        for row in table["run"]:
            if table["cluster"] == cluster and seconds_of(row):
                groups[work_of(row)].append(seconds_of(row))
    return {work: statistics.median(times) for work, times in groups.items() if len(times) >= NEIGHBOURS}


def work_of(row):
    return tuple(str(row.get(key)) for key in ("layers", "hidden", "dp", "tp", "pp", "stage_layers", "sequences",
                                               "context", "recompute"))


@functools.cache
def source(name):
    """A table whose rows have their use. If only some rows are for calibration, they are every n-th row from the first
    (calibration_every), or those whose names begin with calibration_rows. Where the source gives the time of a single
    step (single_steps), a row is contradicted if it is further from the median of its neighbours, the runs of the same
    work, than the goal for the worst error: whatever predicts the neighbours well can't predict it."""
    table = tables()[name]

    def use(i, row):
        part = "calibration_every" in table and i % table["calibration_every"] == 0
        part = part or ("calibration_rows" in table and row["name"].startswith(table["calibration_rows"]))
        if part:
            return "calibration"
        usual = usual_seconds(table["cluster"]).get(work_of(row)) if table.get("single_steps") else None
        return "contradicted" if usual and abs(seconds_of(row) / usual - 1) > WORST_ERROR else table["use"]

    return table | {"run": [row | {"use": use(i, row)} for i, row in enumerate(table["run"])]}


def sources():
    return sorted(path.stem for path in (ROOT / "bench" / "published").glob("*.toml"))


def ranks_of(row):
    return (row["dp"] * row["tp"] * len(row["stage_layers"]) if "stage_layers" in row
            else row["dp"] * row["tp"] * row["pp"])


def strategy_of(row, folder):
    """A strategy file if stages have different numbers of layers, else degrees and settings."""
    settings = {"schedule": row["schedule"], "recompute": row["recompute"],
                "sequence_parallel": row["sequence_parallel"] if row["tp"] > 1 else True,
                "zero": row["zero"], "micro_batch_sequences": row["micro_batch"],
                "micro_batch_tokens": row["micro_batch"] * row["context"]}
    if "chunks" in row:
        settings["chunks"] = row["chunks"]
    if "stage_layers" in row:
        bounds = [sum(row["stage_layers"][:i]) for i in range(len(row["stage_layers"]) + 1)]
        wide = row["dp"] * row["tp"]
        stages = [{"ranks": list(range(i * wide, (i + 1) * wide)),
                   "mesh": {"data": row["dp"], "outer": row["tp"]}, "layers": [bounds[i], bounds[i + 1]]}
                   for i in range(len(bounds) - 1)]
        file = pathlib.Path(folder) / "strategy.json"
        file.write_text(json.dumps({"groups": [{"stages": stages}]} | settings))
        return f'file = "{file.name}"'
    degrees = {key: row[key] for key in ("dp", "tp", "pp")}
    return "strategy = {" + ", ".join(f"{key} = {json.dumps(value)}"
                                      for key, value in (degrees | settings).items()) + "}"


def job_of(row, folder):
    form = {"ffn_size": row.get("ffn"), "kv_heads": row.get("kv_heads")}
    return f"""
[model]
architecture = "{row["architecture"]}"
{"".join(f"{key} = {value}{chr(10)}" for key, value in form.items() if value)}hidden_size = {row["hidden"]}
layers = {row["layers"]}
heads = {row["heads"]}
vocab_size = {row["vocabulary"]}
attention = "{row["attention"]}"
[batch]
sequences = {row["sequences"]}
context = {row["context"]}
lengths = "full"
[[bucket]]
max_length = {row["context"]}
{strategy_of(row, folder)}
[run]
ranks = {ranks_of(row)}
precision = "bf16"
overlap = {json.dumps(row["overlap"])}
"""


def cluster_of(table, clusters=ROOT / "clusters"):
    """The cluster file of the source's own system, or the shipped one."""
    own = ROOT / "bench" / "published" / "clusters" / f"{table['cluster']}.toml"
    return own if own.exists() else clusters / f"{table['cluster']}.toml"


def memory_rate(cluster):
    """Bytes a second that the device of a cluster file moves through its memory in large pieces."""
    device = tomllib.loads(pathlib.Path(cluster).read_text())["device"]
    number, unit = device["memory_bandwidth"].split()
    return float(number) * {"GB/s": 1e9, "TB/s": 1e12}[unit] * device["memory_curve"][-1][1]


def copy_seconds(cluster, row):
    """Time in which a system copies what its collectives gather or scatter: the residual stream of a micro-batch in 16
    bits, read and written, layer_copies times in each layer and other_copies times outside of them."""
    copies = row["layer_copies"] * row["layers"] + row["other_copies"]
    bytes_of_step = row["sequences"] / row["dp"] * row["context"] * row["hidden"] * 2
    return copies * 2 * bytes_of_step / memory_rate(cluster)


def simulated(program, cluster, row):
    """Figures of `simulate --json`. Where a system computes a part of the forward pass again (recompute_part), seconds
    lie so far between those of no and of full recomputation; the other figures are those without. Where it copies the
    tensors of its collectives, the time of the copies is added."""
    found = simulated_as_is(program, cluster, row)
    if "recompute_part" in row:
        full = simulated_as_is(program, cluster, row | {"recompute": "full"})["step_seconds"]
        found["step_seconds"] += row["recompute_part"] * (full - found["step_seconds"])
    found["step_seconds"] += copy_seconds(cluster, row)
    return found


def simulated_as_is(program, cluster, row):
    """The published systems have PyTorch's operators for norms, activations and the loss."""
    with tempfile.TemporaryDirectory() as folder:
        job, with_torch = pathlib.Path(folder) / "job.toml", pathlib.Path(folder) / "cluster.toml"
        job.write_text(job_of(row, folder))
        text = pathlib.Path(cluster).read_text()
        with_torch.write_text(text.replace("[device]\n", "[device]\ntorch_elements = true\n", 1))
        done = subprocess.run([program, "simulate", job, "--cluster", with_torch, "--json"], capture_output=True,
                              text=True, check=False)
    if not done.stdout:  # a job that does not fit has figures, too, and exit status 2
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout.splitlines()[-1])


def seconds_of(row):
    """Published seconds per step; None if only memory was published."""
    if "tokens_per_second" in row:
        return row["sequences"] * row["context"] / row["tokens_per_second"]
    if "sequences_per_second_per_gpu" in row:
        return row["sequences"] / row["sequences_per_second_per_gpu"] / ranks_of(row)
    return row.get("seconds")


def time_error(row, found):
    return found["step_seconds"] / seconds_of(row) - 1 if seconds_of(row) else None


def mean_and_worst(errors):
    return sum(map(abs, errors)) / len(errors), max(map(abs, errors))


def rows_of(program, names, clusters, jobs):
    """name -> [(row, figures)]"""
    cases = [(name, row) for name in names for row in source(name)["run"]]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda case: simulated(program, cluster_of(source(case[0]), clusters), case[1]), cases))
    return {name: [(row, f) for (of, row), f in zip(cases, found) if of == name] for name in names}


def cell(found, published, unit):
    return f"{found:.4g} of {published:.4g} {unit} ({100 * (found / published - 1):+.1f}%)" if published else ""


def fit_cell(row, found):
    return ("" if "fits" not in row else ("yes" if found["fits"] else "no") +
            ("" if found["fits"] == row["fits"] else ", and it did"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build" / "switchyard")
    parser.add_argument("--clusters", type=pathlib.Path, default=ROOT / "clusters")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("source", nargs="*", choices=[[], *sources()])
    options = parser.parse_args()
    names = options.source or sources()
    found = rows_of(options.program, names, options.clusters, options.jobs)
    errors = {(name, use): [time_error(row, f) for row, f in found[name] if seconds_of(row) and row["use"] == use]
              for name in names for use in USES}
    print("| source | cluster file | use | rows | mean error | worst | signed mean |\n|---|---|---|---|---|---|---|")
    totals = [(("all", use), [error for (_, of), part in errors.items() if of == use for error in part])
              for use in USES]
    for (name, use), part in [*errors.items(), *totals]:
        if part:
            mean, worst = mean_and_worst(part)
            cluster = source(name)["cluster"] if name in names else ""
            print(f"| {name} | {cluster} | {use} | {len(part)} | {100 * mean:.1f}% | {100 * worst:.1f}% | "
                  f"{100 * sum(part) / len(part):+.1f}% |")
    for name in names:
        table = source(name)
        print(f"\n## {table['title']}\n\n{table['where']}. {table['notes']}\n")
        print("| run | use | seconds a step, simulated of published | activations, simulated of published | fits "
              "|\n|---|---|---|---|---|")
        for row, f in found[name]:
            print(f"| {row['name']} | {row['use']} | {cell(f['step_seconds'], seconds_of(row), 's')} | "
                  f"{cell(max(f['activation_bytes']) / 2**30, row.get('activations_gib'), 'GiB')} | {fit_cell(row, f)} "
                  "|")


if __name__ == "__main__":
    main()
