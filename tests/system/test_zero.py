"""Weights cut by rows (depth, ZeRO-2 and 3) on every launcher, from one checkpoint to another, and in what the other
commands print."""

import pytest
import tiny_runs as tiny

BUCKETS = [(tiny.LONGEST, "dp=2,pp=2,zero=3,schedule=zb-v"), (30, "dp=2,depth=2"), (20, "dp=4,zero=2")]


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory, corpus):
    out = tmp_path_factory.mktemp("one")
    return tiny.train(tiny.write_job(out / "job.toml", corpus, [(tiny.LONGEST, "1,1,1")]), "--out", out / "run")


def expect_equal(log, expected):
    assert [entry["step"] for entry in log] == [entry["step"] for entry in expected]
    for entry, one in zip(log, expected):
        assert entry["loss"] == pytest.approx(one["loss"], rel=1e-10)
        assert entry["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-10)


def write_job(folder, corpus, buckets=BUCKETS, **sections):
    return tiny.write_job(folder / "job.toml", corpus, buckets, **sections)


@pytest.mark.skipif(not tiny.MPI, reason="this build has no MPI")
def test_ranks_of_mpirun_equal_one_rank(tmp_path, corpus, one_rank):
    job = write_job(tmp_path, corpus)
    expect_equal(tiny.train(job, "--out", tmp_path / "run", launcher=[*tiny.MPIRUN, "-n", 4]), one_rank)


def test_ranks_that_are_processes_equal_one_rank(tmp_path, corpus, one_rank):
    out = tmp_path / "run"
    for rank in tiny.start_ranks([tiny.command(write_job(tmp_path, corpus), "--out", out)] * 4):
        _, error = rank.communicate(timeout=tiny.HANG)
        assert rank.returncode == 0, error
    expect_equal(tiny.read_log(out), one_rank)


def test_checkpoints_go_from_any_rows_to_any_other(tmp_path, corpus, one_rank):
    out = tmp_path / "run"
    for step, strategy in enumerate(["dp=4,zero=3", "tp=2,depth=2", "dp=2,depth=2,zero=0", "ulysses=2,dp=2,zero=3",
                                     "pp=2,depth=2"], 1):
        job = write_job(tmp_path, corpus, [(tiny.LONGEST, strategy)], run={"steps": 5, "checkpoint_every": 1})
        log = tiny.train(job, "--out", out, *(["--resume", out] if step > 1 else []), "--steps", step)
    expect_equal(log, one_rank)


def test_a_program_of_pieces_is_printed(tmp_path, corpus):
    shown = tiny.run([tiny.PROGRAM, "show", "program", write_job(tmp_path, corpus)])
    assert shown.returncode == 0, shown.stderr
    for words in ("gather A.s0 F mb0 u0", "piece1", "reduce-scatter A.s0 W mb0 u0", "reduce-scatter B BW mb0 u0"):
        assert words in shown.stdout


def test_pages_of_a_job_with_depth(tmp_path, corpus):
    job = write_job(tmp_path, corpus, [(tiny.LONGEST, "pp=2,depth=2"), (20, "dp=2,depth=2")])
    shown = tiny.run([tiny.PROGRAM, "show", "plan", job, "--shards"])
    assert shown.returncode == 0, shown.stderr
    assert "mesh A.s1 [depth=2] 2 3" in shown.stdout
    assert "mesh B [data=2 depth=2] 0 1 2 3" in shown.stdout
    assert "grad partial {data,depth}" in shown.stdout
    program = tiny.run([tiny.PROGRAM, "show", "program", job])
    assert program.returncode == 0, program.stderr
    for words in ("gather A.s1 F mb0 u3", "reduce-scatter A.s0 BW mb0 u0", "gather B BW mb0"):
        assert words in program.stdout
    for command in (["simulate", job, "--cluster", "demo", "--report", tmp_path / "page.html"],
                    ["plan", job, "--cluster", "demo", "--seconds", "1"]):
        result = tiny.run([tiny.PROGRAM, *command])
        assert result.returncode == 0, result.stderr
    tiny.train(job, "--out", tmp_path / "run")
    report = tiny.run([tiny.PROGRAM, "report", tmp_path / "run"])
    assert report.returncode == 0, report.stderr


def test_a_zero_stage_that_does_not_exist_is_refused(tmp_path, corpus):
    refused = tiny.run(tiny.command(write_job(tmp_path, corpus, [(tiny.LONGEST, "dp=2,zero=4")])))
    assert refused.returncode == 2
    assert "zero = 4, which must be at most 3" in refused.stderr
