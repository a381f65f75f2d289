#!/usr/bin/env python3
"""The ten published cases of HotSPa (SOSP'24) on the simulated A800 cluster, as Markdown: seconds per step of

  (a) the best single strategy, with every document padded to the context and not separated from others
  (b) the best single strategy with packed documents
  (c) the published buckets and strategies
  (d) the planner's best plan or best single strategy, whichever is quicker in the simulator, as for strategy = "auto"

Where the published strategies need more memory than the job allows, all four are timed on devices with a fifth more
than they need, marked *. (a) is simulated with as many documents, each as long as the context. All are timed by
`switchyard simulate`, on lengths drawn from the recipe's histogram. Planner and simulator share their costs, so
this compares plans, not systems.

    bench/hotspa_table.py [--program build/switchyard]
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTER = "a800-80g"


class Machine:
    def __init__(self, program, cluster):
        self.program, self.cluster = program, cluster

    def figures(self, command, job, *arguments):
        done = subprocess.run([self.program, command, job, "--cluster", self.cluster, "--json", *arguments],
                              capture_output=True, text=True)
        if not done.stdout:  # a job that does not fit has figures, too, and exit status 2
            sys.exit(f"{job}: {done.stderr.strip()}")
        return json.loads(done.stdout.splitlines()[-1])

    def planned(self, job, out, *arguments):
        """Simulated seconds of the planner's best plan."""
        self.figures("plan", job, "--out", out, *arguments)
        return self.figures("simulate", out)["step_seconds"]


def with_memory(program, folder, gib):
    text = (ROOT / f"clusters/{CLUSTER}.toml").read_text()
    path = folder / f"{CLUSTER}-{gib}.toml"
    path.write_text(re.sub(r'^memory = ".*"$', f'memory = "{gib} GiB"', text, count=1, flags=re.M))
    return Machine(program, path)


def case(program, recipe, folder):
    text = recipe.read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("path =", "device =")))
    budget = int(re.search(r'^memory_budget = "(\d+) GiB"$', text, flags=re.M)[1])
    padded, packed = folder / f"{recipe.stem}-padded.toml", folder / f"{recipe.stem}.toml"
    packed.write_text(text)
    padded.write_text(re.sub(r'^lengths = .*$', 'lengths = "full"', text, count=1, flags=re.M))
    machine, more = Machine(program, CLUSTER), []
    needed = max(machine.figures("simulate", packed)["peak_bytes"]) / 2**30
    if needed > budget:
        gib = round(1.2 * needed)
        machine, more = with_memory(program, folder, gib), ["--set", f'run.memory_budget="{gib} GiB"']
    a = machine.planned(padded, folder / "a.toml", "--buckets", "1", *more)
    b = machine.planned(packed, folder / "b.toml", "--buckets", "1", *more)
    c = machine.figures("simulate", packed, *more)["step_seconds"]
    own = machine.planned(packed, folder / "d.toml", *more)
    return recipe.stem + ("*" if more else ""), a, b, c, own, min(own, b)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build" / "switchyard")
    program = parser.parse_args().program
    print("| case | (a) padded | (b) best single | (c) published | planner's plan | (d) | (c) / (d) "
          "|\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for recipe in sorted((ROOT / "recipes/hotspa").glob("*.toml")):
            name, a, b, c, own, d = case(program, recipe, pathlib.Path(folder))
            print(f"| {name} | {a:.1f} | {b:.2f} | {c:.2f} | {own:.2f} | {d:.2f} | {c / d:.2f} |", flush=True)


if __name__ == "__main__":
    main()
