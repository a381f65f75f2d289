"""Commands that tests run by a server do what the program does, and leave nothing behind."""

import re
import signal
import subprocess
import sys

import pytest
import tiny_runs as tiny

ENDLESS = ["--steps", "100000"]


@pytest.fixture
def job(tmp_path, corpus):
    return tiny.write_job(tmp_path / "job.toml", corpus, [(tiny.LONGEST, "1,2,1")], fabric={"timeout": "9 s"})


def started(words, quickly, environment=tiny.ENVIRONMENT, **options):
    words = [tiny.PROGRAM, *map(str, words)]
    if quickly:
        words = [*map(str, tiny.quick(words, environment))]
        assert words[0] != tiny.PROGRAM
    return subprocess.Popen(words, env=environment, text=True, stderr=subprocess.PIPE,
                            **{"stdout": subprocess.PIPE} | options)


def without_times(text):
    text = re.sub(r"[\d.]+k? tok/s +\d+% of peak|left \d+ s|in [\d.]+ m?s \(.*?\)|in-\w+", "", text)
    return re.sub(r"  +", " ", text)


@pytest.mark.parametrize("words, variables", [
    (["train", "--help"], {}), (["train", "JOB", "--steps", 2, "--out", "OUT"], {}), (["train", "nothing.toml"], {}),
    (["verify", tiny.ROOT / "tests/fixtures/gpt2", "--strategy", "1,2,1"], {}), (["evaluate", "JOB"], {}),
    (["train", "JOB"], {"RANK": "3", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "::1", "MASTER_PORT": "1"})],
                         ids=["help", "train", "no job", "verify", "evaluate", "a rank too many"])
def test_output_and_status_are_those_of_the_program(tmp_path, job, words, variables):
    answers = []
    for quickly in (False, True):
        folder = tmp_path / str(quickly)
        folder.mkdir()
        named = [{"JOB": job, "OUT": "out"}.get(word, word) for word in words]
        process = started(named, quickly, tiny.ENVIRONMENT | variables, cwd=folder)
        answers.append([*map(without_times, process.communicate(timeout=tiny.HANG)), process.returncode])
        assert (folder / "out/log.jsonl").exists() == ("OUT" in words)
    assert answers[0] == answers[1]


def test_standard_output_that_is_full_is_a_failure(job):
    with open("/dev/full", "w") as full:
        process = started(["train", "--help"], True, stdout=full)
        assert "cannot write to standard output" in process.communicate(timeout=tiny.HANG)[1]
    assert process.returncode == 3


@pytest.mark.parametrize("sent, status", [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)])
def test_signals_reach_the_command(tmp_path, job, sent, status):
    process = started(["train", job, "--out", tmp_path / "out", *ENDLESS], True)
    tiny.wait_for_steps(process, 2)
    process.send_signal(sent)
    process.communicate(timeout=tiny.HANG)  # until nobody has its standard error
    assert process.returncode == status
    assert tiny.has_checkpoint(tmp_path / "out") == (sent == signal.SIGTERM)


def test_what_libraries_read_as_they_are_loaded_is_left_to_the_program(job):
    words = [tiny.PROGRAM, "train", job]
    assert tiny.quick(words, tiny.ENVIRONMENT | {"OMP_NUM_THREADS": "2"}) == words
    assert tiny.quick(words, tiny.ENVIRONMENT | {"LD_PRELOAD": tiny.SLOW_DISK}) == words
    assert tiny.quick([tiny.PROGRAM, "bench", job], tiny.ENVIRONMENT)[0] == tiny.PROGRAM


def test_nothing_is_left_where_the_tests_are_killed(tmp_path, job):
    out = tmp_path / "out"
    script = f"""import os, signal, sys
sys.path.insert(0, {str(tiny.ROOT / "tests/system")!r})
import tiny_runs as tiny
words = [tiny.PROGRAM, "train", {str(job)!r}, "--out", {str(out)!r}, *{ENDLESS!r}]
tiny.wait_for_steps(tiny.subprocess.Popen([*map(str, tiny.quick(words, tiny.ENVIRONMENT))], env=tiny.ENVIRONMENT,
                                          text=True, stderr=tiny.subprocess.PIPE), 2)
os.kill(os.getpid(), signal.SIGKILL)"""
    killed = tiny.run([sys.executable, "-c", script])  # returns when nobody has its standard output
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    tiny.train(job, "--out", out, "--force", "--steps", 1)  # nobody uses the folder
