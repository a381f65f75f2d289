"""The program accepts the jobs of bench/, and its scripts the options that their docstrings have."""

import ast
import os
import re
import sys
from pathlib import Path

import pytest
import tiny_runs as tiny

BENCH = tiny.ROOT / "bench"
sys.path.insert(0, str(BENCH))
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


def usage_of(script):
    """The docstring of a script, and the indented lines of it that say how the script is called."""
    text = ast.get_docstring(ast.parse(script.read_text()))
    return text, "\n".join(re.findall(rf"^    (?:\S+/python )?bench/{script.name}.*(?:\n {{5,}}.*)*", text, re.M))


@pytest.mark.parametrize("script", sorted(path for path in BENCH.glob("*.py") if "--" in usage_of(path)[1]),
                         ids=lambda path: path.stem)
def test_a_script_has_the_options_of_its_docstring(script):
    text, usage = usage_of(script)
    asked = tiny.run([tiny.PYTHON, script, "--help"])
    assert asked.returncode == 0, asked.stderr
    options = set(re.findall(r"^  (--[a-z-]+)", asked.stdout, re.M))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", usage))
    assert options and named <= options, named - options
    assert all(re.search(rf"{option}(?![\w-])", text) for option in options), options - named
    if f"    bench/{script.name}" in usage:
        assert os.access(script, os.X_OK) and script.read_text().startswith("#!"), "it is called as a command"
