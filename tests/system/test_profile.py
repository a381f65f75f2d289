"""`switchyard profile`, and jobs that are planned before they train."""

import json
import re
import shutil

import pytest
import tiny_runs as tiny


@pytest.fixture(scope="session")
def profile(tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "p.json"
    result = tiny.run([tiny.PROGRAM, "profile", "--quick", "--ranks", "2", "--threads", "1", "--out", path])
    assert result.returncode == 0, result.stderr
    assert (f"written to {path}" in result.stdout and "2 ranks on 1 host, 1 thread each" in result.stdout
            and "profile: " in result.stderr)
    return path


@pytest.fixture
def job(tmp_path, corpus):
    def write(buckets=(), **run):
        return tiny.write_job(tmp_path / "job.toml", corpus, list(buckets),
                              run={"ranks": 2, "precision": "fp32", "steps": 2} | run)

    return write


def test_a_profile_is_a_cluster_to_simulate_and_to_plan_for(profile, job):
    path = job([(48, "1,2,1"), (20, "2,1,1")])
    result = tiny.run([tiny.PROGRAM, "simulate", path, "--cluster", profile, "--json"])
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout.splitlines()[-1])
    assert 0 < figures["step_seconds"] < 5
    result = tiny.run([tiny.PROGRAM, "plan", path, "--cluster", profile, "--json"])
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["chosen"]


@pytest.mark.parametrize("buckets", [[], [(48, "auto")], [(48, "auto"), (20, "auto")]],
                         ids=["no buckets", "one", "two"])
def test_a_job_that_leaves_its_strategies_open_is_planned_and_trains(profile, job, tmp_path, buckets):
    path = job(buckets, profile=str(profile))
    result = tiny.run(tiny.command(path, "--out", tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    told = [line for line in result.stderr.splitlines() if line.startswith("plan: ")]
    assert len(told) == 3 and "a step predicted on" in told[0] and "limited by" in told[2], told
    planned = (tmp_path / "out" / "job.toml").read_text()
    assert "[[bucket]]" in planned and 'strategy = "auto"' not in planned
    compared = json.loads((tmp_path / "out" / "plan.json").read_text())["candidates"]
    assert len(compared) > 1 and sum(plan["chosen"] for plan in compared) == 1
    page = tiny.run([tiny.PROGRAM, "report", tmp_path / "out"])
    assert page.returncode == 0, page.stderr
    html = (tmp_path / "out" / "report.html").read_text()
    assert all(f'"name":"{plan["name"]}","seconds":' in html for plan in compared)
    log = tiny.read_log(tmp_path / "out")
    given = tiny.train(job([(48, "1,1,1")]), "--out", tmp_path / "given")
    assert [entry["loss"] for entry in log] == pytest.approx([entry["loss"] for entry in given], rel=1e-5)


def test_processes_make_the_same_plan_from_their_shared_profile(profile, job, tmp_path):
    if not tiny.MPI:
        pytest.skip("built without MPI")
    path = job(profile=str(profile))
    log = tiny.train(path, "--out", tmp_path / "out", launcher=[*tiny.MPIRUN, "-n", "2"])
    assert [entry["step"] for entry in log] == [1, 2]
    without = tiny.run([*tiny.MPIRUN, "-n", "2", *tiny.command(job())])
    assert without.returncode != 0 and "set run.profile" in without.stderr


def test_processes_meet_before_they_plan(profile, job, tmp_path):
    """What one of them takes longer for the plan, as its host has more of them, must not count as silence."""
    path = job(profile=str(profile))
    first, = tiny.start_ranks([tiny.command(path, "--set", "fabric.timeout=2 s")], variables=[{"WORLD_SIZE": "2"}])
    said = first.communicate(timeout=tiny.HANG)[1]
    assert first.returncode == 3 and "heard nothing from rank 1 for 2 s" in said and "plan: " not in said, said
    log = tiny.train_in_processes(path, 2, tmp_path / "out")
    assert [entry["step"] for entry in log] == [1, 2]


def test_processes_on_hosts_measure_the_links_between_them(tmp_path):
    if not tiny.MPI:
        pytest.skip("built without MPI")
    command = [tiny.PROGRAM, "profile", "--quick", "--threads", "1", "--out", str(tmp_path / "p.json")]
    words = [*tiny.MPIRUN, "-n", "1", "-x", "SWITCHYARD_HOST=a", *command,
             ":", "-n", "1", "-x", "SWITCHYARD_HOST=b", *command]
    result = tiny.run(words, timeout=tiny.HANG)
    assert result.returncode == 0 and "2 ranks on 2 hosts" in result.stdout, result.stderr
    profile = json.loads((tmp_path / "p.json").read_text())
    assert (profile["hosts"] == 2 and profile["machine"]["fabric"] == "mpi"
            and profile["links"]["inter_host"]["bandwidth"] > 1e6)


def test_a_profile_is_measured_once_and_kept(profile, job, tmp_path):
    environment = tiny.ENVIRONMENT | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    kept = tmp_path / "cache" / "switchyard" / "profile-2x1-cpu-fp32-heads8.json"
    kept.parent.mkdir(parents=True)
    shutil.copy(profile, kept)
    result = tiny.run(tiny.command(job(), "--out", tmp_path / "out"), environment=environment)
    assert result.returncode == 0 and "measuring" not in result.stderr, result.stderr


def test_a_model_that_the_budget_cannot_hold_is_refused_before_anything_is_measured(job, tmp_path):
    environment = tiny.ENVIRONMENT | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    result = tiny.run(tiny.command(job(memory_budget="40 KiB")), environment=environment)
    assert result.returncode == 2 and "no strategy fits 2 ranks of 40 KiB" in result.stderr, result.stderr
    assert "Enough: 1 MiB of memory a rank" in result.stderr and "measuring" not in result.stderr, result.stderr


@pytest.mark.parametrize("setting", ["choose_buckets=true", 'emulate="1x2:1Gbit/s,1MiB"'])
def test_given_strategies_that_the_budget_cannot_hold_are_refused_before_anything_is_measured(job, tmp_path, setting):
    environment = tiny.ENVIRONMENT | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = tiny.command(job([(48, "1,2,1"), (16, "2,1,1")], memory_budget="40 KiB"), "--set", f"run.{setting}")
    result = tiny.run(words, environment=environment)
    assert result.returncode == 2 and "more than the memory budget" in result.stderr, result.stderr
    assert not (tmp_path / "cache").exists() and "measuring" not in result.stderr, result.stderr


@pytest.mark.parametrize("change, told", [
    (lambda text: text[:200], "this is not valid JSON"),
    (lambda text: text.replace('"hosts":1', '"hosts":0'), "hosts = 0 must be at least 1"),
    (lambda text: text.replace('"threads":1', '"threads":"one"'), "machine.threads")],
    ids=["cut", "impossible", "wrong type"])
def test_a_corrupted_profile_is_reported(profile, job, tmp_path, change, told):
    broken = tmp_path / "broken.json"
    broken.write_text(change(profile.read_text()))
    for command, path in (("simulate", lambda: job([(48, "1,2,1")])), ("train", lambda: job(profile=str(broken)))):
        words = ["--cluster", broken] if command == "simulate" else []
        result = tiny.run([tiny.PROGRAM, command, path(), *words])
        assert result.returncode == 2 and told in result.stderr and str(broken) in result.stderr, result.stderr


def test_a_job_with_more_ranks_than_were_measured_is_refused(profile, job):
    result = tiny.run(tiny.command(job(profile=str(profile), ranks=4)))
    assert result.returncode == 2 and "4 ranks don't fit on 1 host with 2 devices" in result.stderr, result.stderr


def test_settings_of_strategies_that_are_left_open_are_refused(job):
    result = tiny.run(tiny.command(job([]), "--set", 'parallel.recompute="full"'))
    assert (result.returncode == 2 and "parallel.recompute is set, but the strategies are left to the planner" in
            result.stderr), result.stderr


def test_some_buckets_may_not_be_left_open(job):
    path = job([(48, "auto"), (20, "2,1,1")])
    for words in (tiny.command(path), [tiny.PROGRAM, "plan", path, "--cluster", "demo"],
                  [tiny.PROGRAM, "simulate", path, "--cluster", "demo"]):
        result = tiny.run(words)
        assert result.returncode == 2 and re.fullmatch(
            rf'switchyard: {path}:\d+: bucket\.0\.strategy = "auto", '
            r"but only .* those of all buckets or of none\. .*\n", result.stderr), result.stderr


def test_a_profile_that_is_not_there_is_refused_even_where_it_has_no_use(job, tmp_path):
    result = tiny.run(tiny.command(job([(48, "1,1,1")]), "--set", f"run.profile={tmp_path}/none.json"))
    assert result.returncode == 2 and result.stderr == (
        f'switchyard: run.profile = "{tmp_path}/none.json" can\'t be read: No such file or directory. '
        "Check the path, or leave it out.\n")
