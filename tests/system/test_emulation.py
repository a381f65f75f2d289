"""`train --emulate`: jobs on clusters whose devices are cores of this machine."""

import json

import pytest
import tiny_runs as tiny

BUCKETS = [(48, "1,2,2"), (20, "4,1,1")]
TWO_HOSTS = "2x2:1Mbit/s,100Mbit/s,64MiB"


@pytest.fixture(scope="session")
def profile(tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "emulated.json"
    result = tiny.run([tiny.PROGRAM, "profile", "--quick", "--emulate", TWO_HOSTS, "--out", path])
    assert result.returncode == 0, result.stderr
    assert "4 ranks on 2 hosts, 1 thread each" in result.stdout and "x1.00 beside computing" in result.stdout
    assert "  fp32: products " in result.stdout and "latency, 0.000125 GB/s, " in result.stdout, result.stdout
    return path


@pytest.fixture
def job(tmp_path, corpus):
    return lambda buckets=BUCKETS, **run: tiny.write_job(tmp_path / "job.toml", corpus, buckets,
                                                         run={"precision": "fp32", "steps": 3} | run)


def test_steps_have_the_losses_of_this_machine_and_the_times_of_the_cluster(profile, job, tmp_path):
    plain = tiny.train(job(ranks=4), "--out", tmp_path / "plain")
    result = tiny.run(tiny.command(job(), "--emulate", profile, "--out", tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    assert f"emulated  {profile}: times of steps are those on this cluster" in result.stderr
    assert "tokens in an emulated" in result.stderr
    log = tiny.read_log(tmp_path / "out")
    assert [line["loss"] for line in log] == pytest.approx([line["loss"] for line in plain], rel=1e-6), "sums by host"
    assert all(line["emulated"] == str(profile) and line["inter_bytes"] > 0 for line in log)
    assert all(line["seconds"] > line["inter_bytes"] / 2 / (1e6 / 8) for line in log), "two ports send at once"
    page = tiny.run([tiny.PROGRAM, "report", tmp_path / "out", "--cluster", profile])
    assert page.returncode == 0, page.stderr
    assert "Steps were emulated: times are those on " in (tmp_path / "out/report.html").read_text()


def test_one_host_changes_no_bit(profile, job, tmp_path):
    plain = tiny.train(job(ranks=4), "--out", tmp_path / "plain")
    one = json.loads(profile.read_text())
    one["hosts"], one["devices_per_host"] = 1, 4
    one["links"]["inter_host"]["shared_by"] = 1
    path = tmp_path / "one.json"
    path.write_text(json.dumps(one))
    log = tiny.train(job(), "--emulate", path, "--out", tmp_path / "out")
    assert [line["loss"] for line in log] == [line["loss"] for line in plain]


def test_messages_travel_while_devices_compute_as_on_the_simulated_cluster(profile, job, tmp_path):
    path = job(buckets=[(48, "tp=4")], ranks=4)
    hidden = {}
    for overlap in ("true", "false"):
        log = tiny.train(path, "--emulate", profile, "--set", f"run.overlap={overlap}", "--out", tmp_path / overlap)
        hidden[overlap] = min(line["hidden_share"] for line in log)
    assert hidden["true"] > 10 * hidden["false"], "without overlap only the moves of the step's parameters are"


def test_a_job_without_strategies_is_planned_for_the_cluster(profile, job, tmp_path):
    result = tiny.run(tiny.command(job(buckets=[]), "--emulate", profile, "--out", tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    told = [line for line in result.stderr.splitlines() if line.startswith("plan: ")]
    assert len(told) == 3 and f"predicted on {TWO_HOSTS}" in told[0], told
    text = (tmp_path / "out/job.toml").read_text()
    assert 'memory_budget = "64 MiB"' in text or "memory_budget = 67108864" in text


def test_a_step_that_needs_more_than_a_device_has_is_refused(profile, job, tmp_path):
    small = json.loads(profile.read_text())
    small["device"]["memory"] = 1 << 16
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small))
    for own, remedy in ((None, f'Raise the memory of run.emulate = "{path}" (64 KiB a device),'),
                        ("60 KiB", 'Raise run.memory_budget = "60 KiB",')):
        result = tiny.run(tiny.command(job(**({"memory_budget": own} if own else {})), "--emulate", path))
        assert result.returncode == 2 and "more than the memory budget" in result.stderr, result.stderr
        assert remedy in result.stderr, result.stderr


@pytest.mark.parametrize(("arguments", "message"), [
    (["--emulate", ""], "--emulate is empty. Give it a value, or leave it out."),
    (["--emulate", "2x2"], 'the emulated cluster "2x2" says which hosts there are, but not what their links'),
    (["--emulate", "2x2:1Mbit/s,1GiB"], "needs three things behind the colon"),
    (["--emulate", TWO_HOSTS, "--ranks", "2"], f"run.ranks = 2, but the emulated cluster {TWO_HOSTS} has 4 devices."),
    (["--emulate", TWO_HOSTS, "--set=run.threads=2"], "each emulated device is one core"),
])
def test_a_cluster_that_cannot_be_emulated_is_refused(job, arguments, message):
    buckets = [(48, "2,1,1")] if "--ranks" in arguments else BUCKETS
    result = tiny.run(tiny.command(job(buckets), *arguments))
    assert result.returncode == 2 and message in result.stderr, result.stderr


def test_one_of_several_processes_emulates_nothing(job):
    alone = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    result = tiny.run(tiny.command(job(), "--emulate", TWO_HOSTS), environment=tiny.ENVIRONMENT | alone)
    assert result.returncode == 2 and "emulates a cluster within one process, but 4 were launched" in result.stderr
    result = tiny.run([tiny.PROGRAM, "profile", "--emulate", TWO_HOSTS], environment=tiny.ENVIRONMENT | alone)
    assert result.returncode == 2 and "not by 4 launched processes" in result.stderr
    result = tiny.run([tiny.PROGRAM, "profile", "--emulate", TWO_HOSTS, "--ranks", "2"])
    assert result.returncode == 2 and "--emulate" in result.stderr
