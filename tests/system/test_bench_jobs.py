"""The program accepts the jobs of bench/."""

import sys
from pathlib import Path

import pytest
import tiny_runs as tiny

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import machine_jobs  # noqa: E402
import own_runs  # noqa: E402
import planner_choice  # noqa: E402

JOBS = own_runs.JOBS | {f"hosts: {name}": job for name, job in own_runs.ON_HOSTS.items()}
for workload, sizes in planner_choice.WORKLOADS.items():
    JOBS |= {f"{workload}: {name}": job for name, job in planner_choice.jobs_of(*sizes).items()}


def test_there_are_enough_jobs_and_strategies():
    assert len(own_runs.JOBS) >= 30 and len(planner_choice.WORKLOADS) == 5
    assert all(len(planner_choice.jobs_of(*sizes)) > 12 for sizes in planner_choice.WORKLOADS.values())


@pytest.mark.parametrize("name", JOBS)
def test_a_job_of_the_bench_is_accepted(name, tmp_path):
    path = machine_jobs.write_job(tmp_path / "job", JOBS[name])
    command = "simulate" if JOBS[name]["buckets"] else "plan"
    result = tiny.run([tiny.PROGRAM, command, path, "--cluster", "demo"])
    assert result.stdout and not result.stderr and result.returncode in (0, 2)  # 2: more than the demo cluster has
