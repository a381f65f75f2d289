"""Times of a job's step under several strategies, by `switchyard simulate` and `switchyard plan`, for the tables of
this folder."""

import json
import math
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = 1_000_000
sys.path.insert(0, str(ROOT / "tools"))
import lengths  # noqa: E402


def cut_off(bins, context):
    """The bins of documents that are cut to the context, which is the last bin. Inside a bin lengths are spread evenly
    by their logarithms."""
    kept = [[lo, hi, count] for lo, hi, count in bins if hi <= context]
    for lo, hi, count in bins:
        if lo < context < hi:
            kept.append([lo, context, round(count * math.log(context / lo) / math.log(hi / lo))])
    return [*kept, [context, context + 1, DOCUMENTS - sum(count for *_, count in kept)]]


def bins_up_to(name, context):
    """Bins of a model of tools/lengths.py, cut off at the context."""
    longest = 2**math.ceil(math.log2(context))
    return cut_off(lengths.histogram(lengths.MODELS[name] | {"longest": longest}), context)


class Simulations:
    """Simulations of one job without buckets, in a folder of its own. job: text without [[bucket]]; bins: lengths of
    documents, whose file the job names as lengths.json; cluster: as --cluster takes it; seconds: of the planner's
    search."""

    def __init__(self, program, folder, job, bins, cluster, seconds):
        self.program = pathlib.Path(shutil.which(program) or program).resolve()  # commands run in the folder
        self.folder, self.cluster, self.seconds = folder, cluster, seconds
        (folder / "lengths.json").write_text(json.dumps({"name": "case", "unit": "tokens", "bins": bins}))
        self.job = folder / "job.toml"
        self.job.write_text(job)

    def run(self, *words):
        done = subprocess.run([self.program, *words, "--cluster", self.cluster, "--json"], capture_output=True,
                              text=True, check=False, cwd=self.folder)
        if not done.stdout:  # a job that does not fit has figures, too, and exit status 2
            raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return json.loads(done.stdout.splitlines()[-1])

    def of(self, strategy):
        return self.run("simulate", self.job, "--strategy", strategy) | {"strategy": strategy}

    def planned(self, *words):
        """The planner's best plan, and its job."""
        plan = self.folder / "planned.toml"
        chosen = self.run("plan", self.job, "--seconds", str(self.seconds), "--out", plan, *words)["chosen"]
        strategies = [f"to {one['max_length']}: {one['strategy']}, {one['recompute']} recomputation" for one in chosen]
        return self.run("simulate", plan) | {"strategy": "; ".join(strategies), "job": plan.read_text()}


def quickest(figures):
    """The quickest of those that fit; None if none does."""
    able = [one for one in figures if one["fits"]]
    return min(able, key=lambda one: one["step_seconds"]) if able else None
