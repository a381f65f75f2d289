"""Scripts for clusters pass their linters, and start the program with options that it has."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs as tiny
import yaml

RECIPES = tiny.ROOT / "recipes"
BIN = Path(sys.executable).parent
# podman or docker, if it can build.
BUILDER = next((name for name in ("podman", "docker") if shutil.which(name) and subprocess.run(
    [name, "info"], capture_output=True, check=False).returncode == 0), None)
JOBS = sorted(RECIPES.glob("kubernetes-*.yaml"))


def linted(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_scripts_pass_shellcheck():
    linted(BIN / "shellcheck", RECIPES / "slurm.sh", *sorted(path for path in (tiny.ROOT / "tools").iterdir()
                                                              if path.is_file() and path.suffix == ""))


def test_a_job_that_is_queued_again_keeps_what_it_has_said():
    assert "\n#SBATCH --open-mode=append\n" in (RECIPES / "slurm.sh").read_text()  # sbatch's default: truncate


def test_the_containerfile_passes_its_linter_and_builds_as_the_readme_says():
    # DL3008: versions of Debian's packages are those of the release
    linted(BIN / "hadolint", "--ignore", "DL3008", RECIPES / "Containerfile")
    commands = re.findall("^RUN (.*)$", (RECIPES / "Containerfile").read_text(), re.MULTILINE)
    needed = re.fullmatch("apt-get update && apt-get install -y --no-install-recommends (.*) && rm -rf .*",
                          commands[0])[1].split()
    known = re.findall(r"^\??([\w+.-]+)", (tiny.ROOT / "packages/apt.txt").read_text(), re.MULTILINE)
    assert "make" in needed and "python3" in needed
    assert set(needed) <= {*known, "openssh-client", "openssh-server"}, "make build adds the others"
    commands = [command for command in commands if command.startswith("make")]
    targets = re.findall(r"^(\w+):", (tiny.ROOT / "Makefile").read_text(), re.MULTILINE)
    told = (tiny.ROOT / "README.md").read_text()
    assert commands == ["make build"] and "build" in targets
    assert all(f"`{command}`" in told or f"\n{command}\n" in told for command in commands), "commands of the README"


def test_an_image_has_what_a_checkout_has_and_no_more():
    """A build folder of the machine that makes it would name that machine's paths."""
    left_out = (tiny.ROOT / ".containerignore").read_text()
    assert (tiny.ROOT / ".dockerignore").read_text() == left_out
    for line in (tiny.ROOT / ".gitignore").read_text().splitlines():
        if line.startswith("/") and line.endswith("/"):
            assert f"\n{line[1:]}\n" in left_out


@pytest.mark.skipif(not BUILDER, reason="no container builder that answers")
def test_the_image_has_the_program(tmp_path):
    name = f"switchyard-test-{os.getpid()}"
    linted(BUILDER, "build", "-f", RECIPES / "Containerfile", "-t", name, tiny.ROOT)
    try:
        linted(BUILDER, "run", "--rm", name, "--version")
        for program in ("torchrun", "mpirun", "switchyard"):
            option = "--version" if program != "torchrun" else "-h"
            linted(BUILDER, "run", "--rm", "--entrypoint", program, name, option)
    finally:
        linted(BUILDER, "rmi", name)


def started_and_again(folder, run, programs, words, variables=None, status=0):
    """Runs words where programs print how they are called: before the run has a checkpoint, and after, when the first
    program exits with status."""
    for name in programs:
        ending = "exit ${STATUS:-0}\n" if name == programs[0] else ""
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@"\n{ending}')
        (folder / name).chmod(0o755)

    def started(**more):
        return tiny.run(words, environment=tiny.ENVIRONMENT | {"PATH": f"{folder}:/usr/bin:/bin"} | (variables or {}) |
                        more)

    first = started()
    (run / "checkpoints/step-00000004.partial").mkdir(parents=True)
    assert started().stdout == first.stdout, "it was ended while it wrote its first checkpoint"
    (run / "checkpoints/step-00000004").mkdir()
    (run / "checkpoints/step-00000004/COMMITTED").touch()
    return first, started(STATUS=str(status))


def pods(document):
    """Every pod template within."""
    if isinstance(document, dict):
        if "template" in document:
            yield document["template"]
        for value in document.values():
            yield from pods(value)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_pods_of_a_kubernetes_job_are_valid_and_start_the_program(path, tmp_path):
    templates = list(pods(yaml.safe_load(path.read_text())))
    assert len(templates) == 2
    commands = []
    for number, template in enumerate(templates):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]}
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(pod))
        linted(BIN / "kubernetes-validate", tmp_path / f"{number}.yaml")
        commands += [container["command"] for container in template["spec"]["containers"] if "command" in container]
    assert commands
    for number, words in enumerate(commands):
        assert words[:-1] == ["bash", "-c"]
        run = tmp_path / f"run-{number}"
        first, again = started_and_again(tmp_path, run, ("mpirun", "torchrun"),
                                         ["bash", "-c", words[-1].replace("/runs/mine", str(run))])
        ours = first.stdout.split(" switchyard ")[1].split()
        assert f"{first.stdout.rstrip()} --resume {run}\n" == again.stdout
        help_text = tiny.run([tiny.PROGRAM, ours[0], "--help"]).stdout
        for option in ours:
            assert not option.startswith("--") or re.search(rf"(?<![\w-]){option}(?![\w-])", help_text), option


# The variable with a launcher's wait, and how many such waits there are before it kills its ranks.
@pytest.mark.parametrize(("name", "variable", "waits"), [
    ("mpijob", "OMPI_MCA_odls_base_sigkill_timeout", 2), ("pytorchjob", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", 1)])
def test_ranks_may_save_before_the_launcher_and_its_pod_are_killed(name, variable, waits):
    launcher = next(pods(yaml.safe_load((RECIPES / f"kubernetes-{name}.yaml").read_text())))["spec"]
    wait = int({entry["name"]: entry["value"] for entry in launcher["containers"][0]["env"]}[variable])
    assert wait >= 60 and launcher["terminationGracePeriodSeconds"] > waits * wait


def test_the_batch_script_resumes_a_run_that_has_checkpoints(tmp_path):
    run = tmp_path / "run"
    variables = {"SLURM_NTASKS": "16", "SLURM_JOB_ID": "7"}
    first, again = started_and_again(tmp_path, run, ("srun", "scontrol"), [RECIPES / "slurm.sh", "job.toml", run],
                                     variables, status=138)
    assert first.returncode == 0
    assert first.stdout == f"srun switchyard train job.toml --ranks 16 --out {run}\n"
    assert again.stdout == (f"srun switchyard train job.toml --ranks 16 --out {run} --resume {run}\n"
                            "scontrol requeue 7\n")
    assert again.returncode == 138


@pytest.fixture(scope="module")
def lengths():
    spec = importlib.util.spec_from_file_location("lengths", tiny.ROOT / "tools" / "lengths.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_histograms_are_those_that_their_script_writes(lengths):
    assert sorted(path.stem for path in (RECIPES / "lengths").glob("*")) == sorted(lengths.MODELS)
    for name in lengths.MODELS:
        assert (RECIPES / "lengths" / f"{name}.json").read_text() == lengths.text_of(name), name


def test_histograms_have_the_published_means_and_quartiles(lengths):
    def mean(bins):
        return sum((lo * (hi - 1)) ** 0.5 * count for lo, hi, count in bins) / sum(count for *_, count in bins)

    assert round(mean(lengths.histogram(lengths.MODELS["github"]))) == 2101
    bins = [row for row in lengths.histogram(lengths.MODELS["commoncrawl"]) if 512 <= row[0] < 8192]
    seen, total, quartiles = 0, sum(count for *_, count in bins), []
    for lo, hi, count in bins:
        while len(quartiles) < 3 and seen + count >= (len(quartiles) + 1) * total / 4:
            quartiles.append((lo, hi))
        seen += count
    assert [lo <= value < hi for (lo, hi), value in zip(quartiles, (661, 892, 1363))] == [True] * 3, quartiles


def figures(*words):
    result = tiny.run([tiny.PROGRAM, *words, "--json"])
    assert result.stdout, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_recipes_are_simulated_without_their_data(tmp_path):
    recipe = RECIPES / "hotspa" / "7b-8gpu-github.toml"
    ours = figures("simulate", recipe, "--cluster", "a800-80g")
    copy = tmp_path / "github.json"  # a file is as good as the name
    copy.write_text((RECIPES / "lengths" / "github.json").read_text())
    assert figures("simulate", recipe, "--cluster", "a800-80g", "--lengths", copy) == ours
    other = figures("simulate", recipe, "--cluster", "a800-80g", "--lengths", "commoncrawl")
    assert other["step_seconds"] < ours["step_seconds"], "documents are shorter"
    wrong = tiny.run([tiny.PROGRAM, "simulate", recipe, "--cluster", "a800-80g", "--lengths", "gitlab"])
    assert wrong.returncode == 2 and wrong.stderr == (
        "switchyard: gitlab: can't read the histogram of lengths. Check the path, or use one of commoncrawl, github.\n")


@pytest.mark.parametrize("documents", ["commoncrawl", "github"])
def test_the_published_strategies_of_13b_fit_only_with_full_recomputation_as_their_recipes_say(documents):
    recipe = RECIPES / "hotspa" / f"13b-8gpu-{documents}.toml"
    assert "more than the budget" in recipe.read_text()
    assert not figures("simulate", recipe, "--cluster", "a800-80g")["fits"]
    assert figures("simulate", recipe, "--cluster", "a800-80g", "--set=parallel.recompute=full")["fits"]


def test_a_recipe_is_planned_from_anywhere_with_its_own_lengths_beside_what_was_published(tmp_path):
    recipe = RECIPES / "hotspa" / "7b-8gpu-commoncrawl.toml"
    planned = tiny.run([tiny.PROGRAM, "plan", recipe, "--cluster", "a800-80g", "--seconds", 2, "--json"], cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "synthetic" not in planned.stderr + planned.stdout
    row, *buckets = planned.stdout[planned.stdout.index("\nthe job's own "):].splitlines()[1:5]
    assert [re.match(r"  to (\d+): ([\d,]+)$", line).groups() for line in buckets] == [
        ("32768", "1,4,2"), ("16384", "2,2,2"), ("4096", "8,1,1")]
    lengths = tmp_path / "lengths.json"
    lengths.write_text((RECIPES / "lengths" / "commoncrawl.json").read_text())
    simulated = figures("simulate", recipe, "--cluster", "a800-80g", "--lengths", lengths)
    assert float(re.search(r"([\d.]+) s ", row)[1]) == pytest.approx(simulated["step_seconds"], rel=0.01)
    for bucket in json.loads(planned.stdout.splitlines()[-1])["chosen"]:
        stages = [stage for group in bucket["full"]["groups"] for stage in group["stages"]]
        assert sorted(rank for stage in stages for rank in stage["ranks"]) == list(range(8))
