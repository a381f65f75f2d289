"""The same job on ranks that are threads, processes of mpirun, and processes with torchrun's variables."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
import tiny_runs as tiny

TORCHRUN = Path(tiny.PYTHON).parent / "torchrun"
JOBS = {2: [(48, "1,2,1"), (20, "1,1,2"), (10, "2,1,1")],
        4: [(48, "1,4,1"), (42, "tp=4,inner=2,sequence_parallel=false"), (36, "tp=2,pp=2,paired=true"),
            (30, "ring=4,ring_degree=uniform,exchange=ring"), (24, "2,2,1"), (18, "tp=2,ring=2"), (12, "4,1,1")]}
ENCODED = {"gradients": "int8", "pipeline": "fp8", "activations": "lossless", "ulysses": "fp8", "gathers": "bf16",
           "switches": "lossless", "smallest": "none"}
CASES = {"2 ranks": (2, {}), "4 ranks": (4, {}), "4 ranks, encoded": (4, {"compression": ENCODED})}
SAME = ("step", "loss", "lr", "grad_norm", "tokens", "padding_share", "intra_bytes", "inter_bytes", "skipped")


def what_must_be_the_same(log):
    return [{key: entry[key] for key in SAME} for entry in log]


@pytest.fixture(scope="module", params=CASES)
def job(request, tmp_path_factory, corpus):
    """A job file, its ranks, and what its run as threads logs."""
    folder = tmp_path_factory.mktemp("job")
    ranks, sections = CASES[request.param]
    path = tiny.write_job(folder / "job.toml", corpus, JOBS[ranks], run={"ranks": ranks}, **sections)
    log = tiny.train(path, "--out", folder / "threads")
    assert all(0 <= entry["hidden_share"] < 1 for entry in log)
    return path, ranks, what_must_be_the_same(log)


def test_threads_give_the_same_bits_again(job, tmp_path):
    path, _, expected = job
    assert what_must_be_the_same(tiny.train(path, "--out", tmp_path / "again")) == expected
    assert len(expected) == 5 and all(entry["intra_bytes"] > 0 and entry["inter_bytes"] == 0 for entry in expected)


@pytest.mark.skipif(not tiny.MPI, reason="this build has no MPI")
def test_mpirun_gives_the_bits_of_threads(job, tmp_path):
    """Collectives run beside computing there."""
    path, ranks, expected = job
    assert what_must_be_the_same(tiny.train(path, "--out", tmp_path / "mpi",
                                            launcher=[*tiny.MPIRUN, "-n", ranks])) == expected


@pytest.mark.skipif(not tiny.MPI, reason="this build has no MPI")
@pytest.mark.parametrize("job", ["2 ranks"], indirect=True)
def test_an_mpi_that_does_not_know_the_launcher_is_named(job, tmp_path):
    """With srun --mpi=pmix and an MPI without PMIx, each process would be rank 0 of 1."""
    path, ranks, _ = job
    result = tiny.run(tiny.command(path, "--out", tmp_path / "alone"), environment=tiny.ENVIRONMENT | {
        "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": str(ranks)})
    assert result.returncode == 2
    assert result.stderr.startswith(
        "switchyard, rank 1: started as rank 1 of 2, but MPI says that this is rank 0 of 1: its library is not that of "
        "the launcher. Use the mpirun of the MPI that the program was built with")
    assert not (tmp_path / "alone").exists()


def test_processes_with_the_variables_of_torchrun_give_the_bits_of_threads(job, tmp_path):
    path, ranks, expected = job
    tiny.end_cleanly(tiny.start_ranks([tiny.command(path, "--out", tmp_path / "tcp")] * ranks))
    assert what_must_be_the_same(tiny.read_log(tmp_path / "tcp")) == expected


def step_of_slurm(words, ranks):
    """The processes that srun starts without PMI, in a job whose port is free."""
    def port(job):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", 12000 + (job * 16 + 2) % 20000))
            except OSError:
                return False
        return True

    job = next(job for job in range(os.getpid() * 10, os.getpid() * 10 + 1000) if port(job))
    step = {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "2", "SLURM_NTASKS": str(2 * ranks),
            "SLURM_STEP_NUM_TASKS": str(ranks),
            "SLURM_STEP_NODELIST": "127.0.0.[1,3]"}
    return [subprocess.Popen(words, env=tiny.ENVIRONMENT | step | {"SLURM_PROCID": str(rank)}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(ranks)]


def test_tasks_of_a_step_of_slurm_without_pmi_give_the_bits_of_threads(job, tmp_path):
    path, ranks, expected = job
    tiny.end_cleanly(step_of_slurm(tiny.command(path, "--out", tmp_path / "slurm", "--ranks", ranks), ranks))
    assert what_must_be_the_same(tiny.read_log(tmp_path / "slurm")) == expected


def test_ranks_on_two_hosts_count_their_bytes_between_hosts_and_reach_the_same_losses(job, tmp_path):
    path, ranks, expected = job
    processes = tiny.start_ranks([tiny.command(path, "--out", tmp_path / "hosts")] * ranks,
                                 hosts=["first"] * (ranks // 2) + ["second"] * (ranks // 2))
    tiny.end_cleanly(processes)
    log = tiny.read_log(tmp_path / "hosts")
    close = 1e-3 if "[compression]" in path.read_text() else 1e-12  # other partial sums are encoded there
    assert [entry["loss"] for entry in log] == pytest.approx([entry["loss"] for entry in expected], rel=close)
    assert all(entry["inter_bytes"] > 0 for entry in log)
    assert all((entry["intra_bytes"] > 0) == (ranks > 2) for entry in log)


@pytest.mark.parametrize("job", ["2 ranks"], indirect=True)
def test_ranks_with_a_token_and_an_interface_connect_despite_strangers(job, tmp_path):
    path, ranks, expected = job
    token, port = tmp_path / "token", tiny.free_port()
    token.write_text("s3cret\n")
    settings = {"SWITCHYARD_TOKEN_FILE": str(token), "SWITCHYARD_INTERFACE": "lo"}
    words = tiny.command(path, "--out", tmp_path / "tcp")
    first, = tiny.start_ranks([words], port=port, variables=[settings | {"WORLD_SIZE": str(ranks)}])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            stranger = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    while stranger.recv(1000):
        pass
    second, = tiny.start_ranks([[*words, "--set", f"fabric.token_file={token}", "--set",
                                 "fabric.interface=127.0.0.0/8"]], port=port,
                               variables=[{"RANK": "1", "WORLD_SIZE": str(ranks)}])
    errors = [process.communicate(timeout=tiny.HANG)[1] for process in (first, second)]
    assert first.returncode == second.returncode == 0, errors
    assert ("switchyard: rank 0: refused the connection from 127.0.0.1:" in errors[0]
            and "not a rank of this version" in errors[0])
    assert what_must_be_the_same(tiny.read_log(tmp_path / "tcp")) == expected
    assert "s3cret" not in (tmp_path / "tcp" / "job.toml").read_text() + "".join(errors)


@pytest.mark.parametrize("job", ["2 ranks"], indirect=True)
def test_a_rank_with_another_token_ends_with_a_message_and_no_token(job, tmp_path):
    path, ranks, _ = job
    commands = [tiny.command(path, "--set", f"fabric.token={token}", "--set", f"fabric.timeout={wait}")
                for token, wait in (("s3cret", "3 s"), ("gu3ss", "60 s"))]
    processes = tiny.start_ranks(commands)
    errors = [process.communicate(timeout=tiny.HANG)[1] for process in processes]
    assert [process.returncode for process in processes] == [3, 3], errors
    assert "refused this rank: fabric.token (or torchrun's run id) differs between here and there" in errors[1]
    assert "it has a different fabric.token, or belongs to another run." in errors[0]
    assert "heard nothing from rank 1 for 3 s (refused meanwhile: 127.0.0.1:" in errors[0]
    assert "s3cret" not in "".join(errors) and "gu3ss" not in "".join(errors)


@pytest.mark.skipif(not shutil.which(TORCHRUN), reason="no torchrun beside this Python")
@pytest.mark.parametrize("job", ["2 ranks"], indirect=True)
def test_torchrun_itself_gives_the_bits_of_threads(job, tmp_path):
    path, ranks, expected = job
    launcher = [TORCHRUN, "--no-python", "--nproc-per-node", ranks, "--master-port", tiny.free_port()]
    assert what_must_be_the_same(tiny.train(path, "--out", tmp_path / "torchrun", launcher=launcher)) == expected


def test_one_rank_hides_no_communication(tmp_path, corpus):
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(48, "1,1,1")],
                         run={"ranks": 1, "precision": "bf16", "steps": 1})
    [line] = tiny.train(job, "--out", tmp_path / "run")
    assert "hidden_share" not in line and "slowest_rank" not in line
