"""Complete runs with checkpoints on slow disks and in shared folders."""

import os
import shutil
import signal
import subprocess
import time

import pytest
import tiny_runs as tiny

BUCKETS = [(48, "1,2,1"), (20, "2,1,1")]
USER_ERROR, CLUSTER_ERROR = 2, 3
NEVER_DONE = 100000
TIMEOUT = 3  # timeout of the fabric, in seconds


@pytest.fixture
def job(tmp_path, corpus):
    return lambda buckets=BUCKETS, **changes: tiny.write_job(tmp_path / "job.toml", corpus, buckets, **changes)


@pytest.fixture
def slow_disk(monkeypatch):
    """Makes each sync take 400 ms, so that rank 0 writes a checkpoint for longer than the fabric's timeout."""
    tiny.slow_disk(monkeypatch, 400)


def one_checkpoint(job, **changes):
    return job(run={"steps": 1, "checkpoint_every": 1}, fabric={"timeout": f"{TIMEOUT} s", "strict": True}, **changes)


def test_a_run_goes_on_only_with_its_corpus(job, tmp_path):
    out = tmp_path / "out"
    tiny.train(job(run={"steps": 1}), "--out", out)
    tiny.write_corpus(tmp_path / "other", tiny.random_documents(3, 400))
    other = ["--resume", out, "--steps", "2", "--set", f"data.path={tmp_path / 'other'}"]
    result = tiny.run(tiny.command(tmp_path / "job.toml", "--out", out, *other))
    assert result.returncode == USER_ERROR
    assert "the checkpoint's place is in a corpus of " in result.stderr and "has 400 with " in result.stderr
    meta = out / "checkpoints/step-00000001/meta.json"
    assert '"documents"' in meta.read_text()
    tiny.train(tmp_path / "job.toml", "--out", out, "--resume", out, "--steps", "2")


def test_a_run_may_go_on_with_other_data(job, tmp_path):
    """Once: whoever repeats the same command, as launchers do, goes on in the new data."""
    out = tmp_path / "out"
    tiny.train(job(run={"steps": 2}), "--out", out)
    tiny.write_corpus(tmp_path / "other", tiny.random_documents(3, 400))
    command = tiny.command(tmp_path / "job.toml", "--out", out, "--resume", out, "--new-data", "--set",
                           f"data.path={tmp_path / 'other'}", "--steps")
    said = "draws from data.path from the beginning"
    for steps, begins in [(3, True), (5, False)]:
        result = tiny.run(command + [str(steps)])
        assert result.returncode == 0 and (said in result.stderr) == begins, result.stderr
    fresh = tmp_path / "fresh"
    tiny.train(tmp_path / "job.toml", "--out", fresh, "--steps", "3", "--set", f"data.path={tmp_path / 'other'}")
    assert [row["tokens"] for row in tiny.read_log(out)[2:]] == [row["tokens"] for row in tiny.read_log(fresh)]
    assert [row["step"] for row in tiny.read_log(out)] == [1, 2, 3, 4, 5]

    tokenizer = '{"model": {"vocab": {"%s": 5}}}'
    (out / "checkpoints/step-00000005/model/tokenizer.json").write_text(tokenizer % "the")
    (tmp_path / "other/tokenizer.json").write_text(tokenizer % "a")
    result = tiny.run(command + ["6"])
    assert result.returncode == USER_ERROR
    assert "was prepared with another tokenizer than that of the model in " in result.stderr


def test_new_data_is_a_way_to_resume(job):
    result = tiny.run(tiny.command(job(), "--new-data"))
    assert result.returncode == USER_ERROR and "--new-data requires --resume" in result.stderr, result.stderr


def test_every_rank_writes_its_own_part(job, tmp_path):
    """That part is of the model, and of the optimizer's state, which two replicas divide."""
    out, counts = tmp_path / "out", [tmp_path / "bytes-0", tmp_path / "bytes-1"]
    saved = job(buckets=[(48, "2,1,1")], run={"steps": 1, "checkpoint_every": 1})
    variables = [{"LD_PRELOAD": tiny.SLOW_DISK, "DISK_BYTES": str(count)} for count in counts]
    for rank in tiny.start_ranks([tiny.command(saved, "--out", out)] * 2, variables=variables):
        _, error = rank.communicate(timeout=tiny.HANG)
        assert rank.returncode == 0, error
    folder = out / "checkpoints/step-00000001"
    tensors = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
    written = [int(count.read_text()) for count in counts]
    assert min(written) > 0.4 * tensors and sum(written) < 1.1 * tensors, (written, tensors)


def seconds_of_checkpoint(out):
    """Time from the last line of the log to the mark of the complete checkpoint."""
    return (out / "checkpoints/step-00000001/COMMITTED").stat().st_mtime - (out / "log.jsonl").stat().st_mtime


def test_ranks_that_are_threads_wait_for_a_slow_disk_longer_than_for_each_other(job, tmp_path, slow_disk):
    out = tmp_path / "out"
    tiny.train(one_checkpoint(job), "--out", out)
    assert seconds_of_checkpoint(out) > 1.5 * TIMEOUT


def test_ranks_that_are_processes_wait_for_a_slow_disk_longer_than_for_each_other(job, tmp_path, slow_disk):
    out = tmp_path / "out"
    for rank in tiny.start_ranks([tiny.command(one_checkpoint(job), "--out", out)] * 2):
        _, error = rank.communicate(timeout=tiny.HANG)
        assert rank.returncode == 0, error
    assert seconds_of_checkpoint(out) > 1.5 * TIMEOUT


@pytest.mark.skipif(not tiny.MPI, reason="this build has no MPI")
def test_ranks_of_mpirun_wait_for_a_slow_disk_longer_than_for_each_other(job, tmp_path, slow_disk):
    out = tmp_path / "out"
    tiny.train(one_checkpoint(job), "--out", out, launcher=[*tiny.MPIRUN, "-n", 2], timeout=tiny.HANG)
    assert seconds_of_checkpoint(out) > 1.5 * TIMEOUT


def test_training_goes_on_while_a_slow_disk_takes_a_checkpoint(job, tmp_path, slow_disk):
    out = tmp_path / "out"
    path = job(run={"steps": 8, "checkpoint_every": 3}, fabric={"timeout": f"{TIMEOUT} s", "strict": True})
    run = subprocess.Popen(tiny.command(path, "--out", out), env=tiny.ENVIRONMENT, text=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tiny.wait_for_steps(run, 5)
    assert any(out.glob("checkpoints/step-00000003.*.partial"))
    error = run.communicate(timeout=tiny.HANG)[1]
    assert run.returncode == 0, error
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [f"step-{n:08}" for n in (3, 6, 8)]
    stood_still = {entry["step"]: entry["checkpoint_seconds"] for entry in tiny.read_log(out)
                   if "checkpoint_seconds" in entry}
    assert list(stood_still) == [4, 7] and stood_still[4] < 0.5 * stood_still[7], "step 6 waits for the first to end"


def test_other_ranks_go_on_while_the_disk_of_one_stands_still(job, tmp_path):
    """Until the next checkpoint, which waits for the one before."""
    out, stands = tmp_path / "out", tmp_path / "stands"
    stands.touch()
    slow = {"LD_PRELOAD": tiny.SLOW_DISK, "SLOW_DISK_WHILE": str(stands), "SLOW_DISK_MS": str(1000 * tiny.HANG)}
    path = job(run={"steps": 8, "checkpoint_every": 4}, fabric={"timeout": f"{TIMEOUT} s", "strict": True})
    ranks = tiny.start_ranks([tiny.command(path, "--out", out)] * 2, variables=[{}, slow])
    tiny.wait_for_steps(ranks[0], 7)
    assert any(out.glob("checkpoints/step-00000004.*.partial")) and not tiny.has_checkpoint(out)
    stands.unlink()
    for rank in ranks:
        error = rank.communicate(timeout=tiny.HANG)[1]
        assert rank.returncode == 0, error
    assert sorted(path.parent.name for path in out.glob("checkpoints/*/COMMITTED")) == [
        f"step-{step:08}" for step in (4, 8)]
    assert [entry["step"] for entry in tiny.read_log(out) if "checkpoint_seconds" in entry] == [5]


def start_until_it_saves(path, out):
    """Two processes, the first of which is writing a checkpoint's model."""
    ranks = tiny.start_ranks([tiny.command(path, "--out", out)] * 2)
    while not any(out.glob("checkpoints/step-*.partial/model/*")):
        assert ranks[0].poll() is None, ranks[0].communicate()
        time.sleep(0.01)
    return ranks


@pytest.mark.parametrize("victim", [0, 1], ids=["the writer", "one that waits"])
@pytest.mark.parametrize("end, told", [(signal.SIGKILL, "is gone"), (signal.SIGSTOP, f"for {TIMEOUT} s")],
                         ids=["killed", "stopped"])
def test_the_death_of_a_rank_while_a_checkpoint_is_written_is_noticed(job, tmp_path, slow_disk, victim, end, told):
    out = tmp_path / "out"
    ranks = start_until_it_saves(one_checkpoint(job), out)
    ranks[victim].send_signal(end)
    _, error = ranks[1 - victim].communicate(timeout=tiny.HANG)
    ranks[victim].kill()
    ranks[victim].communicate()
    assert ranks[1 - victim].returncode == CLUSTER_ERROR, error
    assert (f"rank {1 - victim} (host " in error and f"rank {victim}" in error and told in error
            and "checkpoint 1" in error)
    assert victim == 1 or not (out / "checkpoints/step-00000001").exists()


def test_a_second_run_in_a_folder_is_refused_until_the_first_has_ended_however_it_ends(job, tmp_path):
    out = tmp_path / "out"
    first = subprocess.Popen(tiny.command(job(run={"steps": NEVER_DONE, "checkpoint_every": 1}), "--out", out),
                             env=tiny.ENVIRONMENT, text=True,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tiny.wait_for_steps(first, 2)
    for arguments in [["--out", out], ["--out", out, "--resume", out]]:
        second = tiny.run(tiny.command(job(), *arguments))
        assert second.returncode == USER_ERROR
        assert second.stderr.startswith(f"switchyard: {out} is in use by another run: process {first.pid} on host ")
        assert second.stderr.endswith("Wait until it ends, end it, or choose another run.out.\n")
    tiny.wait_for_checkpoint(first, out)
    first.kill()
    first.communicate()
    done = len(tiny.read_log(out))
    log = tiny.train(job(run={"steps": done + 2}), "--out", out, "--resume", out)
    assert [entry["step"] for entry in log] == list(range(1, done + 3))


def test_a_second_run_of_processes_is_refused_on_all_ranks(job, tmp_path):
    out = tmp_path / "out"
    first = subprocess.Popen(tiny.command(job(run={"steps": NEVER_DONE}), "--out", out), env=tiny.ENVIRONMENT,
                             text=True,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tiny.wait_for_steps(first, 1)
    ranks = tiny.start_ranks([tiny.command(job(), "--out", out)] * 2)
    errors = [rank.communicate(timeout=tiny.HANG)[1] for rank in ranks]
    first.kill()
    first.communicate()
    assert [rank.returncode for rank in ranks] == [USER_ERROR, CLUSTER_ERROR]
    assert all(f"{out} is in use by another run: process {first.pid} on host " in error for error in errors)


def test_a_killed_run_goes_on_with_what_its_codecs_had_lost(job, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def path(steps):
        return job(run={"steps": steps, "checkpoint_every": 4},
                   compression={"gradients": "top-1-of-32", "smallest": 0, "keys": "bf16", "switches": "lossless"})

    ranks = tiny.start_ranks([tiny.command(path(NEVER_DONE), "--out", killed)] * 2)
    tiny.wait_for_checkpoint(ranks[0], killed)
    for rank in ranks:
        rank.kill()
        rank.communicate()
    steps = len(tiny.read_log(killed)) + 5
    for rank in tiny.start_ranks([tiny.command(path(steps), "--resume", killed, "--out", killed)] * 2):
        _, error = rank.communicate(timeout=tiny.HANG)
        assert rank.returncode == 0, error
    tiny.train(path(steps), "--out", whole)
    of = [[(entry["step"], entry["loss"], entry["grad_norm"]) for entry in tiny.read_log(out)]
          for out in (whole, killed)]
    assert of[0] == of[1] and len(of[0]) == steps


def test_three_buckets_go_on_with_what_their_codecs_had_lost(tmp_path, corpus):
    """A rank sends parts of a parameter of which none has all elements between them."""
    buckets = [(48, "dp=2,depth=2,zero=3"), (30, "tp=4,inner=2"), (20, "tp=4")]
    job = tiny.write_job(tmp_path / "job.toml", corpus, buckets,
                         run={"ranks": 4, "home": 1, "steps": 4},
                         compression={"gradients": "fp8", "error_feedback": "on", "smallest": 0})
    whole = tiny.train(job, "--out", tmp_path / "whole")
    tiny.train(job, "--out", tmp_path / "out", "--steps", 2)
    resumed = tiny.train(job, "--out", tmp_path / "out", "--resume", tmp_path / "out")
    of = [[(entry["step"], entry["loss"], entry["grad_norm"]) for entry in log] for log in (whole, resumed)]
    assert of[0] == of[1]


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_step_that_is_refused_saves_those_before_it(job, tmp_path, processes):
    """The memory budget is that of the first steps; a later one needs more."""
    path = job(buckets=[(48, "1,2,1")], batch={"sequences": 2}, run={"ranks": 2, "steps": 6})
    log = tiny.train(path, "--out", tmp_path / "whole")
    needs = [max(entry["peak_bound_bytes_per_rank"]) for entry in log]
    budget = needs[0]
    refused = next(step for step, need in enumerate(needs) if need > 1.1 * budget)
    assert 0 < refused < 5 and max(needs[:refused]) <= budget
    words = tiny.command(path, "--out", tmp_path / "out", "--set", f'run.memory_budget="{budget} B"')
    if processes:
        ranks = tiny.start_ranks([words] * 2)
        results = [(rank.communicate(timeout=tiny.HANG)[1], rank.returncode) for rank in ranks]
    else:
        result = tiny.run(words)
        results = [(result.stderr, result.returncode)]
    for text, status in results:
        assert status == USER_ERROR and f"step {refused + 1}: rank " in text, text
    assert os.listdir(tmp_path / "out/checkpoints") == [f"step-{refused:08}"]
    on = tiny.train(path, "--resume", tmp_path / "out", "--out", tmp_path / "out")
    assert on[-1]["step"] == 6 and on[-1]["loss"] == pytest.approx(log[-1]["loss"], rel=1e-12)


def test_a_refusal_is_said_though_the_steps_before_it_can_not_be_saved(job, tmp_path):
    path = job(buckets=[(48, "1,2,1")], batch={"sequences": 2}, run={"ranks": 2, "steps": 6})
    needs = [max(entry["peak_bound_bytes_per_rank"]) for entry in tiny.train(path, "--out", tmp_path / "whole")]
    out = tmp_path / "out"
    out.mkdir()
    (out / "checkpoints").write_text("in the way")
    result = tiny.run(tiny.command(path, "--out", out, "--set", f'run.memory_budget="{needs[0]} B"'))
    assert result.returncode == USER_ERROR and "more than the memory budget" in result.stderr.splitlines()[-1]
    assert "was not saved: " in result.stderr and (out / "checkpoints").read_text() == "in the way"


def test_a_run_that_goes_back_keeps_both_lines(job, tmp_path):
    out = tmp_path / "out"
    keep = {"checkpoint_every": 2, "keep_checkpoints": 2}
    old = tiny.train(job(run=keep | {"steps": 8}), "--out", out)
    path = job(run=keep | {"steps": 7, "checkpoint_every": 1}, optimizer={"lr": 1e-3})
    new = tiny.train(path, "--out", out, "--resume", out / "checkpoints/step-00000006")
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-00000006", "step-00000007"]
    assert sorted(path.name for path in (out / "abandoned-1/checkpoints").iterdir()) == ["step-00000008"]
    assert [entry["lr"] for entry in new] == [1e-2] * 6 + [1e-3]
    assert tiny.read_log(out / "abandoned-1") == old
    page = tiny.run([tiny.PROGRAM, "report", out / "abandoned-1"])
    assert page.returncode == 0, page.stderr
    more = tiny.train(job(run=keep | {"steps": 9}, optimizer={"lr": 1e-3}), "--out", out, "--resume", out)
    assert more[:7] == new and [entry["step"] for entry in more[7:]] == [8, 9]


def test_a_checkpoint_that_was_moved_to_another_disk_is_resumed_by_its_link(job, tmp_path):
    out = tmp_path / "out"
    whole = tiny.train(job(run={"steps": 4, "checkpoint_every": 2, "keep_checkpoints": 0}), "--out", out)
    for named in (out, out / "checkpoints/step-00000004"):
        run = shutil.copytree(out, tmp_path / f"run-{len(named.parts)}", symlinks=True)
        moved = shutil.move(run / "checkpoints/step-00000004", tmp_path / f"moved-{len(named.parts)}")
        (run / "checkpoints/step-00000004").symlink_to(moved)
        log = tiny.train(job(run={"steps": 5}), "--out", run, "--resume", run / named.relative_to(out))
        assert log[:4] == whole and log[4]["step"] == 5


def test_a_checkpoint_of_another_run_is_remarked_by_the_steps_that_the_log_lacks(job, tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    tiny.train(job(run={"steps": 2}), "--out", out)
    tiny.train(job(run={"steps": 5}), "--out", other)
    shutil.copytree(other / "checkpoints/step-00000005", out / "checkpoints/step-00000005")
    result = tiny.run(tiny.command(job(run={"steps": 6}), "--out", out, "--resume", out))
    assert result.returncode == 0
    assert (f"log.jsonl in {out} has no steps 3 to 5: its last one before this run is 2. Is the checkpoint another "
            "run's?") in " ".join(result.stderr.split()), result.stderr
    for into in (tmp_path / "new", other):  # a folder without a log, and the run's own
        result = tiny.run(tiny.command(job(run={"steps": 6}), "--out", into, "--resume", other))
        assert result.returncode == 0 and "has no steps" not in result.stderr, result.stderr


def test_what_a_killed_checkpoint_left_is_not_set_aside(job, tmp_path):
    out = tmp_path / "out"
    tiny.train(job(run={"steps": 2}), "--out", out)
    (out / "checkpoints/step-00000003.1b2f03c4.partial/state").mkdir(parents=True)
    tiny.train(job(run={"steps": 1}), "--out", out, "--force")
    assert [path.name for path in (out / "abandoned-1/checkpoints").iterdir()] == ["step-00000002"]


def test_a_checkpoint_that_cannot_be_removed_stays_and_ends_no_run(job, tmp_path):
    out = tmp_path / "out"
    saved = job(run={"steps": 2, "checkpoint_every": 1, "keep_checkpoints": 1})
    tiny.train(saved, "--out", out)
    kept = out / "checkpoints/step-00000002/state"
    if os.geteuid() == 0:  # who may remove everything but what is mounted
        if subprocess.run(["mount", "--bind", kept, kept], stderr=subprocess.DEVNULL).returncode != 0:
            pytest.skip("this user may not mount")
    else:
        kept.chmod(0o500)
    try:
        result = tiny.run(tiny.command(saved, "--out", out, "--resume", out, "--steps", "5"))
    finally:
        (kept,) = out.glob("checkpoints/step-00000002*/state")
        if os.geteuid() == 0:
            subprocess.run(["umount", kept], check=True)
        else:
            kept.chmod(0o700)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(f"cannot remove {out}/checkpoints/step-00000002: ") == 1
    assert len(tiny.read_log(out)) == 5 and (out / "checkpoints/step-00000005/COMMITTED").exists()


def test_more_steps_than_planned_never_raise_the_learning_rate_unasked(job, tmp_path):
    out = tmp_path / "out"

    def linear(steps, **optimizer):
        return job(run={"steps": steps, "checkpoint_every": 2},
                   optimizer={"schedule": "linear", "lr": 1e-2, **optimizer})

    planned = tiny.train(linear(4), "--out", out)
    assert [entry["lr"] for entry in planned] == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])
    refused = tiny.run(tiny.command(linear(8), "--out", out, "--resume", out))
    assert refused.returncode == USER_ERROR
    assert refused.stderr == (
        "switchyard: run.steps = 8 is beyond step 4, where the learning rate of this run ends at min_lr = 0. Set "
        "optimizer.decay_steps = 4 to train the further steps at that rate, or 8 to stretch the decay over them: the "
        "next step then has 0.005 instead of 0.\n")
    back = tiny.train(linear(3), "--out", out, "--resume", out / "checkpoints/step-00000002")
    assert [entry["lr"] for entry in back] == pytest.approx([1e-2, 7.5e-3, 5e-3])
    longer = tiny.train(linear(5, decay_steps=5), "--out", out, "--resume", out)
    assert [entry["lr"] for entry in longer] == pytest.approx([1e-2, 7.5e-3, 5e-3, 4e-3, 2e-3])
