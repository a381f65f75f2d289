"""Killed runs that resume, also under other strategies and on other ranks, train as if they had not been killed."""

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import tiny_runs as tiny

TORCHRUN = Path(tiny.PYTHON).parent / "torchrun"
STEPS, CONTEXT = 40, 32
# Ranks, and bounds with their strategies. Documents above the context are split, so a checkpoint may be within one.
LIVES = [(1, [(32, "1,1,1")]), (2, [(32, "1,2,1"), (12, "2,1,1")]), (4, [(32, "1,2,2"), (20, "4,1,1")]),
         (3, [(32, "1,1,3")]),
         (4, [(32, "1,4,1"), (24, "2,1,2"), (8, "2,2,1")]), (2, [(32, "1,1,2")]),
         (4, [(32, "ring=4,zero=3"), (20, "dp=2,ring=2")]), (3, [(32, "ring=3,ring_degree=uniform")])]


def write_job(path, corpus, life, **run):
    ranks, buckets = life
    return tiny.write_job(path, corpus, buckets, batch={"sequences": 7, "context": CONTEXT},
                          optimizer={"lr": 1e-2, "schedule": "cosine", "warmup_steps": 5},
                          run={"steps": STEPS, "ranks": ranks, "checkpoint_every": 1, "keep_checkpoints": 2} | run)


@pytest.fixture
def start(monkeypatch):
    """Starts a run of threads, or of processes. A step with a checkpoint takes a third of a second, so that none has
    ended before it is killed."""
    def run(job, out, processes=None):
        words = tiny.command(job, "--out", out, *(["--resume", out] if tiny.has_checkpoint(out) else []))
        with monkeypatch.context() as patch:
            tiny.slow_disk(patch, 30)
            return (tiny.start_ranks([words] * processes) if processes else
                    subprocess.Popen(words, env=tiny.ENVIRONMENT, text=True, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE))

    return run


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "the run had ended before it was killed"


def expect_like(whole, log):
    assert [entry["step"] for entry in log] == list(range(1, len(whole) + 1))
    for entry, expected in zip(log, whole):
        assert entry["loss"] == pytest.approx(expected["loss"], rel=1e-9)
        assert entry["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-9)
        assert entry["tokens"] == expected["tokens"] and entry["lr"] == expected["lr"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, corpus):
    """The log of an uninterrupted run on one rank."""
    out = tmp_path_factory.mktemp("whole")
    log = tiny.train(write_job(out / "job.toml", corpus, LIVES[0], checkpoint_every=0), "--out", out)
    assert len({entry["loss"] for entry in log}) == STEPS
    return log


def test_kills_at_random_moments_leave_the_loss_curve_of_a_run_without_them(tmp_path, corpus, whole, start):
    draw = random.Random(1)
    out = tmp_path / "out"
    lives = draw.sample(LIVES[:6], 3) + LIVES[6:]
    draw.shuffle(lives)
    for life in lives:
        process = start(write_job(tmp_path / "job.toml", corpus, life), out)
        tiny.wait_for_steps(process, 3)  # then step 1 has a checkpoint, for which that of step 2 has waited
        time.sleep(draw.uniform(0, 0.5))
        kill(process)
    tiny.train(write_job(tmp_path / "job.toml", corpus, draw.choice(LIVES)), "--out", out, "--resume", out)
    expect_like(whole, tiny.read_log(out))


def test_a_kill_while_a_checkpoint_is_written_costs_only_that_checkpoint(tmp_path, corpus, whole, start):
    out = tmp_path / "out"
    torn = 0
    for life in LIVES[1:5]:
        process = start(write_job(tmp_path / "job.toml", corpus, life), out)
        tiny.wait_for_steps(process, 3)
        while not any(out.glob("checkpoints/step-*.partial")):
            assert process.poll() is None
            time.sleep(0.001)
        kill(process)
        torn += any(out.glob("checkpoints/step-*.partial"))
    assert torn >= 2
    tiny.train(write_job(tmp_path / "job.toml", corpus, LIVES[5]), "--out", out, "--resume", out)
    expect_like(whole, tiny.read_log(out))
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [f"step-{STEPS - 1:08}", f"step-{STEPS:08}"]


def test_a_run_of_processes_goes_on_as_threads_after_one_was_killed(tmp_path, corpus, whole, start):
    out = tmp_path / "out"
    ranks = start(write_job(tmp_path / "job.toml", corpus, LIVES[1]), out, processes=2)
    tiny.wait_for_steps(ranks[0], 3)
    kill(ranks[1])
    ranks[0].communicate(timeout=tiny.HANG)
    tiny.train(write_job(tmp_path / "job.toml", corpus, LIVES[2]), "--out", out, "--resume", out)
    expect_like(whole, tiny.read_log(out))


def test_a_run_killed_before_its_first_checkpoint_starts_again_only_by_force(tmp_path, corpus, whole, start):
    out = tmp_path / "out"
    process = start(write_job(tmp_path / "job.toml", corpus, LIVES[1], checkpoint_every=0, steps=100000), out)
    tiny.wait_for_steps(process, 2)
    kill(process)
    job = write_job(tmp_path / "job.toml", corpus, LIVES[1], checkpoint_every=0)
    before = (out / "log.jsonl").read_bytes()
    again = tiny.run(tiny.command(job, "--out", out))
    assert again.returncode == 2 and "holds the log of a run without checkpoints" in again.stderr
    assert (out / "log.jsonl").read_bytes() == before
    tiny.train(job, "--out", out, "--force")
    expect_like(whole, tiny.read_log(out))
    assert (out / "abandoned-1/log.jsonl").read_bytes() == before


def start_endless(tmp_path, corpus, launch):
    """The processes of a run that does not end by itself, and its folder."""
    out = tmp_path / "out"
    job = write_job(tmp_path / "job.toml", corpus, LIVES[1], steps=100000, checkpoint_every=0)
    words = tiny.command(job, "--out", out)
    if launch == "torchrun's variables":
        return tiny.start_ranks([words] * 2), out
    return [subprocess.Popen([*map(str, launch), *words], env=tiny.ENVIRONMENT, text=True, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)], out


def expect_stopped(process, out, sent, status=None):
    """The run has ended with its last step kept, and goes on from there."""
    rest = process.communicate(timeout=tiny.HANG)[1]
    assert process.returncode == (status or 128 + sent), rest
    steps = len(tiny.read_log(out))
    assert f"saved step {steps}: {out}/checkpoints/step-{steps:08}\n" in rest
    assert f"{sent.name}: stopped after step {steps} of 100000\n" in rest
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"step-{steps:08}"]
    log = tiny.train(out / "job.toml", "--out", out, "--resume", out, "--steps", steps + 2)
    assert [entry["step"] for entry in log] == list(range(1, steps + 3))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_a_run_after_its_step_with_a_checkpoint(tmp_path, corpus, sent):
    (process,), out = start_endless(tmp_path, corpus, [])
    tiny.wait_for_steps(process, 2)
    process.send_signal(sent)
    expect_stopped(process, out, sent)


def test_ctrl_c_saves_the_run_though_it_ends_who_reads_the_output(tmp_path, corpus):
    """A terminal sends SIGINT to all of `train | tee`, and tee ends at once."""
    out = tmp_path / "out"
    job = write_job(tmp_path / "job.toml", corpus, LIVES[1], steps=100000, checkpoint_every=0)
    pipe = f"{shlex.join(map(str, tiny.command(job, '--out', out)))} 2>&1 | tee {tmp_path}/told"
    shell = subprocess.Popen(["bash", "-c", f"trap : INT; {pipe}; exit ${{PIPESTATUS[0]}}"], env=tiny.ENVIRONMENT,
                             stdout=subprocess.DEVNULL, start_new_session=True)
    while len(tiny.read_log(out) if (out / "log.jsonl").exists() else []) < 2:
        assert shell.poll() is None
        time.sleep(0.01)
    os.killpg(shell.pid, signal.SIGINT)
    assert shell.wait(timeout=tiny.HANG) == 128 + signal.SIGINT
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"step-{len(tiny.read_log(out)):08}"]


def validated_in(out):
    return [json.loads(line)["step"] for line in (out / "validation.jsonl").read_text().splitlines()]


def test_no_validation_delays_the_end_that_a_signal_asks_for(tmp_path, corpus):
    out = tmp_path / "out"
    job = tiny.write_job(tmp_path / "job.toml", corpus, LIVES[1][1], batch={"context": CONTEXT},
                         validation={"path": str(corpus), "every": 1}, run={"ranks": 2, "steps": 100000})
    process = subprocess.Popen(tiny.command(job, "--out", out), env=tiny.ENVIRONMENT, text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tiny.wait_for_steps(process, 2)
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=tiny.HANG)[1]
    assert process.returncode == 128 + signal.SIGTERM, rest
    steps = [entry["step"] for entry in tiny.read_log(out)]
    assert validated_in(out) in (steps[:-1], steps) and tiny.has_checkpoint(out)


def test_a_signal_in_the_last_step_leaves_out_no_validation(tmp_path, corpus):
    """No later run would make up for it. A step takes about a second, in which the signal comes."""
    out = tmp_path / "out"
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(CONTEXT, "1,1,1")],
                         model=tiny.MODEL | {"hidden_size": 256, "ffn_size": 768},
                         batch={"context": CONTEXT, "sequences": 64}, validation={"path": str(corpus), "every": 2},
                         run={"steps": 1})
    process = subprocess.Popen(tiny.command(job, "--out", out), env=tiny.ENVIRONMENT, text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not (line := process.stderr.readline()).startswith("memory"):  # said as the first step begins
        assert line, "the run has ended"
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=tiny.HANG)[1]
    assert process.returncode == 0, rest
    assert validated_in(out) == [1] and tiny.has_checkpoint(out)


@pytest.mark.parametrize("processes", [None, 2], ids=["threads", "processes"])
def test_a_signal_during_a_validation_ends_the_run_without_another_step(tmp_path, corpus, processes):
    out, validated = tmp_path / "out", tiny.write_corpus(tmp_path / "validated", tiny.random_documents(2, 4000))
    job = tiny.write_job(tmp_path / "job.toml", corpus, LIVES[1][1], batch={"context": CONTEXT},
                         validation={"path": str(validated), "every": 1, "sequences": 4000},
                         run={"ranks": 2, "steps": 100000})
    words = tiny.command(job, "--out", out)
    ranks = tiny.start_ranks([words] * processes) if processes else [
        subprocess.Popen(words, env=tiny.ENVIRONMENT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)]
    tiny.wait_for_steps(ranks[0], 1)
    ranks[-1].send_signal(signal.SIGTERM)
    for rank in ranks:
        rest = rank.communicate(timeout=tiny.HANG)[1]
        assert rank.returncode == 128 + signal.SIGTERM, rest
    assert [entry["step"] for entry in tiny.read_log(out)] == validated_in(out) == [1] and tiny.has_checkpoint(out)


@pytest.mark.parametrize(("asked", "sent"), [([0, 1], signal.SIGUSR1), ([0, 1], signal.SIGTERM), ([0], signal.SIGTERM),
                                             ([1], signal.SIGTERM)], ids=["all, as Slurm", "all", "rank 0", "rank 1"])
def test_processes_stop_after_the_same_step_whichever_of_them_is_asked(tmp_path, corpus, asked, sent):
    ranks, out = start_endless(tmp_path, corpus, "torchrun's variables")
    tiny.wait_for_steps(ranks[0], 2)
    for rank in asked:
        ranks[rank].send_signal(sent)
    expect_stopped(ranks[0], out, sent)
    error = ranks[1].communicate(timeout=tiny.HANG)[1]
    assert ranks[1].returncode == 128 + sent, error


@pytest.mark.skipif(not tiny.MPI, reason="this build has no MPI")
def test_mpirun_passes_on_the_signal_that_asks_to_stop(tmp_path, corpus):
    (process,), out = start_endless(tmp_path, corpus, [*tiny.MPIRUN, "-n", "2"])
    tiny.wait_for_steps(process, 2)
    process.send_signal(signal.SIGUSR1)
    expect_stopped(process, out, signal.SIGUSR1)


def kills_at_once():
    """Whether mpirun is that of Open MPI 5, which has no setting for how long it waits (docs/clusters.md)."""
    return tiny.MPI and "(Open MPI) 4" not in tiny.run(["mpirun", "--version"]).stdout


@pytest.mark.skipif(not tiny.MPI, reason="this build has no MPI")
@pytest.mark.skipif(kills_at_once(), reason="Open MPI 5 kills ranks at once")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_mpirun_with_a_longer_wait_lets_ranks_save_after_a_signal(tmp_path, corpus, sent):
    """It sends them SIGTERM after that wait, whichever it has got, and SIGKILL after as long again."""
    for seconds in (2, 8, 32, 80):  # a busy machine needs more for a step; meanwhile the ranks go on computing
        folder = tmp_path / str(seconds)
        folder.mkdir()
        launcher = [*tiny.MPIRUN, "--mca", "odls_base_sigkill_timeout", seconds, "-n", "2"]
        (process,), out = start_endless(folder, corpus, launcher)
        tiny.wait_for_steps(process, 2)
        process.send_signal(sent)
        process.wait(timeout=tiny.HANG)
        if tiny.has_checkpoint(out):
            break
    expect_stopped(process, out, signal.SIGTERM, status=1)


@pytest.mark.skipif(not shutil.which(TORCHRUN), reason="no torchrun beside this Python")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_torchrun_passes_on_a_signal_and_waits_for_its_ranks(tmp_path, corpus, sent):
    launcher = [TORCHRUN, "--no-python", "--nproc-per-node", 2, "--master-port", tiny.free_port(), "--shutdown-timeout",
                tiny.HANG]
    (process,), out = start_endless(tmp_path, corpus, launcher)
    tiny.wait_for_steps(process, 2)
    process.send_signal(sent)
    expect_stopped(process, out, sent, status=1)


@pytest.mark.parametrize("launch", ["threads", "processes"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_run_at_once(tmp_path, corpus, launch, sent):
    """The process that gets it ends while it saves, and the others because of it."""
    stands, out = tmp_path / "stands", tmp_path / "out"  # the disk stands still as soon as there is the former
    slow = {"LD_PRELOAD": tiny.SLOW_DISK, "SLOW_DISK_WHILE": str(stands), "SLOW_DISK_MS": str(1000 * tiny.HANG)}
    job = write_job(tmp_path / "job.toml", corpus, LIVES[1], steps=100000, checkpoint_every=0, trace_step=0)
    words = tiny.command(job, "--out", out)
    if launch == "threads":
        ranks = [subprocess.Popen(words, env=tiny.ENVIRONMENT | slow, text=True, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)]
    else:
        ranks = tiny.start_ranks([words] * 2, variables=[{}, slow])
    tiny.wait_for_steps(ranks[0], 2)
    stands.touch()
    ranks[-1].send_signal(sent)
    while not any(out.glob("checkpoints/step-*.partial")):
        assert ranks[-1].poll() is None
        time.sleep(0.001)
    if sent == signal.SIGTERM:
        time.sleep(1.1)  # within a second it would be the same request
    ranks[-1].send_signal(sent)
    ends = [process.communicate(timeout=tiny.HANG)[1] for process in reversed(ranks)]
    assert [process.returncode for process in reversed(ranks)] == [-sent, 3][:len(ranks)], ends
    assert launch == "threads" or "rank 1" in ends[1], ends
    assert not tiny.has_checkpoint(out)
