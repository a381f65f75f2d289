"""log.wandb: a stand-in for the package writes down what it is given; the real one, where it is installed, keeps it."""

import importlib.util
import json
import os
import signal
import subprocess
import time

import pytest
import tiny_runs as tiny

STAND_IN = """\
import json, os


class Run:
    id = "abc123"

    def note(self, **what):
        with open(os.environ["NOTES"], "a") as file:
            file.write(json.dumps(what) + "\\n")

    def define_metric(self, name, step_metric):
        self.note(metric=name, by=step_metric)

    def log(self, figures):
        self.note(log=figures)

    def finish(self):
        self.note(finished=True)


def init(**settings):
    if "REFUSED" in os.environ:
        raise ValueError(os.environ["REFUSED"])  # an unknown WANDB_MODE has the same effect
    run = Run()
    run.note(init=settings)
    return run
"""


@pytest.fixture
def package(tmp_path):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "wandb.py").write_text(STAND_IN)
    return tiny.ENVIRONMENT | {"PYTHONPATH": str(tmp_path / "modules"), "NOTES": str(tmp_path / "notes"),
                               "SWITCHYARD_PYTHON": tiny.PYTHON}


def job_of(tmp_path, corpus):
    return tiny.write_job(tmp_path / "job.toml", corpus, [(48, "2,1,1")], run={"ranks": 2, "steps": 3},
                          log={"wandb": True}, validation={"path": str(corpus), "every": 2, "sequences": 4})


def notes_of(environment):
    with open(environment["NOTES"], encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_every_step_and_validation_is_sent_once_also_of_a_resumed_run(tmp_path, corpus, package):
    job, out = job_of(tmp_path, corpus), tmp_path / "out"
    tiny.train(job, "--out", out, environment=package)
    log = tiny.train(job, "--out", out, "--resume", out, "--steps", 4, environment=package)
    notes = notes_of(package)
    begun = [note["init"] for note in notes if "init" in note]
    assert ([(run["name"], run["id"], run["dir"]) for run in begun]
            == [("out", None, str(out)), ("out", "abc123", str(out))])
    assert begun[0]["config"]["run"]["steps"] == 3
    sent = [note["log"] for note in notes if "log" in note]
    assert [figures["train/loss"] for figures in sent if "train/loss" in figures] == [entry["loss"] for entry in log]
    assert [figures["step"] for figures in sent if "validation/loss" in figures] == [2, 3, 4]
    assert [entry["step"] for entry in log] == [figures["step"] for figures in sent if "train/lr" in figures]
    assert sum("finished" in note for note in notes) == 2


def test_a_run_that_goes_back_is_another_one_there_and_what_it_left_goes_on(tmp_path, corpus, package):
    job, out = job_of(tmp_path, corpus), tmp_path / "out"
    keep = ["--set", "run.checkpoint_every=1", "--set", "run.keep_checkpoints=0"]
    tiny.train(job, "--out", out, *keep, environment=package)
    (out / "wandb-id").write_text("first\n")  # the stand-in gives all runs one identity
    tiny.train(job, "--out", out, "--resume", out / "checkpoints/step-00000001", "--steps", 2, *keep,
               environment=package)
    left = out / "abandoned-1"
    tiny.train(job, "--out", left, "--resume", left, "--steps", 4, *keep, environment=package)
    runs = []
    for note in notes_of(package):
        if "init" in note:
            runs.append((note["init"]["id"], []))
        elif "train/loss" in note.get("log", {}):
            runs[-1][1].append(note["log"]["step"])
    assert runs == [(None, [1, 2, 3]), (None, [1, 2]), ("first", [4])]


def test_a_run_that_is_logged_later_sends_its_earlier_steps_too(tmp_path, corpus, package):
    job, out = job_of(tmp_path, corpus), tmp_path / "out"
    tiny.train(job, "--out", out, "--set", "log.wandb=false", environment=package)
    tiny.train(job, "--out", out, "--resume", out, "--steps", 4, environment=package)
    assert [note["log"]["step"] for note in notes_of(package)
            if "train/loss" in note.get("log", {})] == [1, 2, 3, 4]


def test_what_is_sent_is_what_tensorboard_gets(tmp_path, corpus, package):
    out = tmp_path / "out"
    tiny.train(job_of(tmp_path, corpus), "--emulate", "2x1:1GB/s,1GB/s,1GiB", "--out", out, environment=package)
    sent = {(name, figures["step"]): value for figures in (note["log"] for note in notes_of(package) if "log" in note)
            for name, value in figures.items() if name != "step"}
    assert {"train/emulated", "train/peak_bound_bytes", "validation/loss"} < {name for name, _ in sent}
    assert sent == pytest.approx(tiny.events(out), rel=1e-6)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_all_processes_of_a_run_loses_none_of_its_steps(tmp_path, corpus, package, sent):
    """A terminal's Ctrl-C and Slurm send such signals."""
    job, out = job_of(tmp_path, corpus), tmp_path / "out"
    run = subprocess.Popen(tiny.command(job, "--out", out, "--steps", 100000), env=package, text=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    tiny.wait_for_steps(run, 2)
    os.killpg(run.pid, sent)
    error = run.communicate(timeout=tiny.HANG)[1]
    assert run.returncode == 128 + sent, error
    notes = notes_of(package)
    sent_steps = [note["log"]["step"] for note in notes if "log" in note and "train/loss" in note["log"]]
    assert sent_steps == [entry["step"] for entry in tiny.read_log(out)] and "finished" in notes[-1]


def test_without_the_package_a_note_says_so_and_the_run_goes_on(tmp_path, corpus, package):
    (tmp_path / "modules" / "wandb.py").write_text("raise ModuleNotFoundError('no such package')\n")
    (tmp_path / "wandb").mkdir()  # the package makes one where other programs use it
    (tmp_path / "wandb" / "__init__.py").touch()
    done = tiny.run(tiny.command(job_of(tmp_path, corpus), "--out", tmp_path / "out"),
                    environment=package, cwd=tmp_path)
    assert done.returncode == 0
    assert ("log.wandb: the Python package wandb is missing, so it is left out. Install it with: pip install wandb\n"
            in done.stderr), done.stderr


def test_a_package_that_refuses_the_run_says_why_and_the_run_goes_on(tmp_path, corpus, package):
    done = tiny.run(tiny.command(job_of(tmp_path, corpus), "--out", tmp_path / "out"),
                    environment=package | {"REFUSED": "1 error for Settings\nmode\n  Input should be 'online'."})
    assert done.returncode == 0 and len(tiny.read_log(tmp_path / "out")) == 3
    assert "log.wandb: 1 error for Settings mode Input should be 'online'. It is left out.\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interpreter_that_does_not_start_is_reported_and_the_run_goes_on(tmp_path, corpus):
    done = tiny.run(tiny.command(job_of(tmp_path, corpus), "--out", tmp_path / "out"),
                    environment=tiny.ENVIRONMENT | {"SWITCHYARD_PYTHON": "/no/python"})
    assert done.returncode == 0
    assert "log.wandb: cannot start /no/python: No such file or directory. It is left out.\n" in done.stderr
    assert len(tiny.read_log(tmp_path / "out")) == 3


def test_a_run_without_a_folder_sends_nothing_and_says_so(tmp_path, corpus, package):
    done = tiny.run(tiny.command(job_of(tmp_path, corpus)), environment=package)
    assert done.returncode == 0 and "log.wandb needs run.out: nothing is sent" in done.stderr


# What an offline run of the real package has kept: its name, identity and settings, and the figures of each line. The
# file has a header, then records in pieces with heads of 7 bytes; no piece crosses a block's end.
KEPT = """\
import json, sys
from wandb.proto.wandb_internal_pb2 import Record

HEAD, BLOCK, LAST_PIECES = 7, 32768, (1, 4)
kept, record, at = {"lines": []}, b"", HEAD
content = open(sys.argv[1], "rb").read()
while at < len(content):
    if BLOCK - at % BLOCK < HEAD:
        at += BLOCK - at % BLOCK
        continue
    size = int.from_bytes(content[at + 4:at + 6], "little")
    record += content[at + HEAD:at + HEAD + size]
    if content[at + 6] in LAST_PIECES:
        message, record = Record.FromString(record), b""
        if message.HasField("run"):
            kept["run"] = {"name": message.run.display_name, "id": message.run.run_id,
                           "config": {item.key: json.loads(item.value_json) for item in message.run.config.update}}
        elif message.HasField("history"):
            kept["lines"].append({"".join(item.nested_key) or item.key: json.loads(item.value_json)
                                  for item in message.history.item})
    at += HEAD + size
print(json.dumps(kept))
"""


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="the package wandb is not installed")
def test_the_real_package_keeps_a_run_and_its_resumed_rest_offline(tmp_path, corpus):
    environment = tiny.ENVIRONMENT | {"WANDB_MODE": "offline", "SWITCHYARD_PYTHON": tiny.PYTHON, "HOME": str(tmp_path)}
    job, out = job_of(tmp_path, corpus), tmp_path / "out"
    tiny.train(job, "--out", out, environment=environment)
    time.sleep(1)  # it names folders by the second
    log = tiny.train(job, "--out", out, "--resume", out, "--steps", 4, environment=environment)
    kept = []
    for path in sorted(out.glob("wandb/offline-run-*/run-*.wandb")):
        told = tiny.run([tiny.PYTHON, "-c", KEPT, path], environment=environment)
        assert told.returncode == 0, told.stderr
        kept.append(json.loads(told.stdout))
    assert ([(part["run"]["name"], part["run"]["config"]["run"]["steps"]) for part in kept]
            == [("out", 3), ("out", 4)])
    assert {part["run"]["id"] for part in kept} == {(out / "wandb-id").read_text().strip()}
    lines = [line for part in kept for line in part["lines"]]
    assert ([(line["step"], line["train/loss"]) for line in lines if "train/loss" in line]
            == [(entry["step"], entry["loss"]) for entry in log])
    assert [line["step"] for line in lines if "validation/loss" in line] == [2, 3, 4]
