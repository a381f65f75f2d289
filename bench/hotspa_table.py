#!/usr/bin/env python3
"""The ten published cases of HotSPa (SOSP'24) on the simulated A800 cluster, a table in Markdown: seconds a step of

  (a) the best single strategy where every document is padded to the context and no document is apart from its neighbours
  (b) the best single strategy with packed documents
  (c) the published buckets and strategies
  (d) the planner's own, which is the quickest of its plan, (b) and (c) where the simulator ranks them otherwise

(a) stands for rows padded to the context: as many documents, each as long as the context. All are timed by `switchyard simulate`, on
lengths drawn from a histogram for each dataset; planner and simulator share their costs, so this compares plans, not systems.

    bench/hotspa_table.py WORKLOADS [PROGRAM]      WORKLOADS: folder with commoncrawl-like.json and github-like.json
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTER = "a800-80g"


def figures(program, command, job, *arguments):
    done = subprocess.run([program, command, job, "--cluster", CLUSTER, "--json", *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{job}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def planned(program, job, out, *arguments):
    """Seconds that the simulator gives the planner's best."""
    figures(program, "plan", job, "--out", out, *arguments)
    return figures(program, "simulate", out)["step_seconds"]


def case(program, recipe, workloads, folder):
    text = recipe.read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("path =", "device =")))
    dataset = "commoncrawl" if "commoncrawl" in recipe.stem else "github"
    padded, packed = folder / f"{recipe.stem}-padded.toml", folder / f"{recipe.stem}.toml"
    for job, lengths in ((padded, "full"), (packed, workloads / f"{dataset}-like.json")):
        job.write_text(text.replace("[batch]", f'[batch]\nlengths = "{lengths}"'))
    a = planned(program, padded, folder / "a.toml", "--buckets", "1")
    b = planned(program, packed, folder / "b.toml", "--buckets", "1")
    c = figures(program, "simulate", packed)["step_seconds"]
    own = planned(program, packed, folder / "d.toml")
    return a, b, c, own, min(own, b, c)


def main():
    workloads = pathlib.Path(sys.argv[1]).resolve()
    program = sys.argv[2] if len(sys.argv) > 2 else str(ROOT / "build/switchyard")
    print("| case | (a) padded | (b) best single | (c) published | planner's plan | (d) | (c) / (d) |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for recipe in sorted((ROOT / "recipes/hotspa").glob("*.toml")):
            a, b, c, own, d = case(program, recipe, workloads, pathlib.Path(folder))
            print(f"| {recipe.stem} | {a:.1f} | {b:.2f} | {c:.2f} | {own:.2f} | {d:.2f} | {c / d:.2f} |", flush=True)


if __name__ == "__main__":
    main()
