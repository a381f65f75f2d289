"""The Python module switchyard, and what the wheel says of itself."""

import json
import os
import re
import shutil
import subprocess
import sys
from email.parser import Parser

import numpy
import pytest
import tiny_runs as tiny
from packaging.requirements import Requirement

sys.path.insert(0, str(tiny.ROOT / "python"))
import switchyard  # noqa: E402

OPTIONS = {"model": "7b", "context": 1024, "sequences": 16, "cluster": "h100-80g"}


@pytest.fixture(autouse=True)
def program(monkeypatch):
    monkeypatch.setenv("SWITCHYARD_PROGRAM", tiny.PROGRAM)


def test_plans_simulations_and_switches_are_those_of_the_commands():
    result = tiny.run([tiny.PROGRAM, "simulate", "--model", "7b", "--context", "1024", "--sequences", "16", "--cluster",
                       "h100-80g", "--strategy", "4,2,1", "--json"])
    assert switchyard.simulate(**OPTIONS, strategy="4,2,1") == json.loads(result.stdout.splitlines()[-1])
    found = switchyard.plan(**OPTIONS, ranks=8, buckets=1)
    assert found["step_seconds"] > 0 and len(found["chosen"]) == 1
    switch = switchyard.switch_plan("2,4,2", "4,4,1", model="7b", cluster="h100-80g")
    assert switch["seconds"] > 0 and switch["messages"] > 0


def test_a_job_file_and_options_that_repeat(tmp_path, corpus):
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(tiny.LONGEST, "1,2,1")])
    plain = switchyard.simulate(job, cluster="demo")
    changed = switchyard.simulate(job, cluster="demo", set=["batch.sequences=2", "run.precision=fp32"])
    assert changed["step_seconds"] < plain["step_seconds"]


def test_what_does_not_fit_has_figures_and_what_is_wrong_raises():
    assert switchyard.simulate(**OPTIONS | {"model": "32b"}, strategy="8,1,1")["fits"] is False
    with pytest.raises(switchyard.Error, match="there is no job file, and --context is missing"):
        switchyard.plan(model="7b", cluster="h100-80g")
    with pytest.raises(switchyard.Error, match="nowhere.toml: can't read the job file"):
        switchyard.plan("nowhere.toml", cluster="h100-80g")


def test_runs_and_corpora_are_read(tmp_path):
    documents = tiny.random_documents(3, 20)
    corpus = tiny.write_corpus(tmp_path / "corpus", documents)
    read = switchyard.Corpus(corpus)
    assert len(read) == 20 and [list(document) for document in read] == documents
    assert read.lengths.tolist() == [len(document) for document in documents] and list(read[-1]) == documents[-1]
    with pytest.raises(IndexError):
        read[20]
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(tiny.LONGEST, "1,1,1")], run={"steps": 3})
    log = tiny.train(job, "--out", tmp_path / "run")
    run = switchyard.Run(tmp_path / "run")
    assert run.steps == log and run.column("loss").tolist() == [line["loss"] for line in log]
    assert numpy.isnan(run.column("loss/no-source")).all() and run.validations == []
    with pytest.raises(switchyard.Error, match="no run"):
        switchyard.Run(tmp_path / "none")


def test_the_module_is_the_program():
    environment = tiny.ENVIRONMENT | {"PYTHONPATH": str(tiny.ROOT / "python"), "SWITCHYARD_PROGRAM": tiny.PROGRAM}
    for words in (["show", "model", "--model", "7b"], ["show"]):
        ours = tiny.run([tiny.PYTHON, "-m", "switchyard", *words], environment=environment)
        theirs = tiny.run([tiny.PROGRAM, *words])
        assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


def test_the_example_of_the_readme_works(tmp_path, monkeypatch):
    example = re.search(r"^```python\n(.*?)^```", (tiny.ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    corpus = tiny.write_corpus(tmp_path / "data" / "python", tiny.random_documents(3, 20))
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(tiny.LONGEST, "1,1,1")], run={"steps": 1})
    tiny.train(job, "--out", tmp_path / "out" / "demo")
    (tmp_path / "demo").symlink_to(tiny.ROOT / "demo")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(example, names)  # noqa: S102
    assert names["found"]["chosen"]


def test_it_finds_the_program_of_its_prefix(tmp_path, monkeypatch):
    module = shutil.copytree(tiny.ROOT / "python" / "switchyard", tmp_path / "share/switchyard/python/switchyard")
    (tmp_path / "bin").mkdir()
    os.symlink(tiny.PROGRAM, tmp_path / "bin" / "switchyard")
    environment = {name: value for name, value in os.environ.items() if name != "SWITCHYARD_PROGRAM"}
    words = [tiny.PYTHON, "-c", "import switchyard; print(switchyard.program())"]
    found = subprocess.run(words, cwd=module.parent, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(tmp_path / "bin" / "switchyard")
    (tmp_path / "bin" / "switchyard").unlink()
    missing = subprocess.run(words, cwd=module.parent, env=environment, capture_output=True, text=True, check=False)
    assert missing.returncode == 1 and "Install the wheel, or set SWITCHYARD_PROGRAM." in missing.stderr


def test_the_wheel_has_the_version_of_the_program_and_the_packages_that_it_needs(tmp_path, monkeypatch):
    build = pytest.importorskip("scikit_build_core.build")
    monkeypatch.chdir(tiny.ROOT)
    folder = build.prepare_metadata_for_build_wheel(str(tmp_path))
    told = Parser().parsestr((tmp_path / folder / "METADATA").read_text())
    version = re.search(r'kVersion = "([^"]+)"', (tiny.ROOT / "src/base/version.hpp").read_text())[1]
    assert told["Name"] == "switchyard" and told["Version"] == version
    needed = {Requirement(line) for line in (tiny.ROOT / "packages/requirements.in").read_text().splitlines()
              if line and not line.startswith("#")}
    assert {Requirement(line) for line in told.get_all("Requires-Dist")} == needed - {Requirement("bokeh>=3.9,<4")}
    assert "bokeh" in (tiny.ROOT / "pyproject.toml").read_text(), "BokehJS is within the program"
