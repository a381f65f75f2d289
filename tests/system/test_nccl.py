"""Ranks with a device each that exchange messages by NCCL: the program on the stand-in device, with a stand-in
library."""

import collections
import json
import os
import re
import signal
import time

import pytest
import tiny_runs as tiny

LIBRARY = os.environ.get("STANDIN_NCCL", str(tiny.ROOT / "build/tests/comm/standin_nccl/libstandin_nccl.so"))
RANKS = 4
BUCKETS = [(48, "1,4,1"), (45, "dp=2,tp=2,paired=true"), (42, "tp=4,inner=2,sequence_parallel=false"),
           (36, "dp=2,pp=2,schedule=zb-v"), (30, "ring=4,exchange=ring"), (24, "tp=2,depth=2"), (18, "tp=2,ring=2"),
           (12, "dp=4,zero=3")]
TWO = [(48, "tp=2,depth=2"), (12, "dp=4,zero=3")]
ENCODED = {"gradients": "int8", "pipeline": "fp8", "switches": "lossless", "smallest": "none"}
SAME = ("step", "loss", "grad_norm", "tokens", "intra_bytes", "inter_bytes", "skipped")


def job_of(folder, corpus, run=(), buckets=tuple(BUCKETS), **sections):
    settings = {"ranks": RANKS, "steps": 3, "device": "cuda", "save_last": False} | dict(run)
    return tiny.write_job(folder / "job.toml", corpus, list(buckets), run=settings, **sections)


def start(job, out, sets=(), options=(), soon=False, **variables):
    """A process for each rank, each of which sees another device."""
    words = [tiny.ON_STANDIN, "train", str(job), "--out", str(out), *(word for key in sets for word in ("--set", key)),
             *map(str, options)]
    return tiny.start_ranks([words] * RANKS, variables=[{"CUDA_VISIBLE_DEVICES": str(rank), "SWITCHYARD_NCCL": LIBRARY}
                                                        | variables for rank in range(RANKS)], soon=soon)


def ends(processes):
    """Exit statuses and messages."""
    texts = [process.communicate(timeout=tiny.HANG)[1] for process in processes]
    return [process.returncode for process in processes], texts


def trained(job, out, sets=(), options=(), **variables):
    statuses, texts = ends(start(job, out, sets, options, soon=True, **variables))
    assert statuses == [0] * RANKS, texts
    return [{key: entry[key] for key in SAME} for entry in tiny.read_log(out)]


@pytest.fixture(scope="module")
def plain_by_hosts(tmp_path_factory, corpus):
    """The log of a job without further settings, whose messages go by hosts."""
    folder = tmp_path_factory.mktemp("plain")
    return trained(job_of(folder, corpus), folder / "hosts", ["fabric.nccl=false"])


@pytest.mark.parametrize("sections", [{}, {"compression": ENCODED}], ids=["plain", "encoded"])
def test_messages_by_nccl_give_the_bits_and_bytes_of_messages_by_hosts(tmp_path, corpus, plain_by_hosts, sections):
    job = job_of(tmp_path, corpus, **sections)
    by_hosts = trained(job, tmp_path / "hosts", ["fabric.nccl=false"]) if sections else plain_by_hosts
    assert len(by_hosts) == 3 and all(entry["intra_bytes"] > 0 for entry in by_hosts)
    assert trained(job, tmp_path / "nccl") == by_hosts
    assert trained(job, tmp_path / "strict", ["fabric.strict=true"]) == by_hosts


def validated(out):
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"}
            for line in (out / "validation.jsonl").read_text().splitlines()]


def test_validations_need_no_channels_but_those_of_training(tmp_path, corpus):
    job = job_of(tmp_path, corpus, run={"steps": 2}, validation={"path": str(corpus), "every": 1, "sequences": 6})
    by_hosts = trained(job, tmp_path / "hosts", ["fabric.nccl=false"])
    assert trained(job, tmp_path / "nccl") == by_hosts
    assert len(validated(tmp_path / "hosts")) == 2 and validated(tmp_path / "nccl") == validated(tmp_path / "hosts")


def calls_of(prefix):
    """How often the processes called each function of the library."""
    files = list(prefix.parent.glob(prefix.name + ".*"))
    assert len(files) == RANKS
    counts = collections.Counter()
    for file in files:
        for line in file.read_text().splitlines():
            function, count = line.split()
            counts[function] += int(count)
    return counts


GATHER, SCATTER, REDUCE = "ncclAllGather", "ncclReduceScatter", "ncclAllReduce"


# The stand-in makes sums in the order of ranks, which is that of partials in these jobs: to the bit in fp32, too.
@pytest.mark.parametrize("strategy,sums", [
    ("tp=2", {SCATTER}), ("tp=4", {SCATTER}), ("tp=4,sequence_parallel=false", {REDUCE, SCATTER}),
    ("tp=4,inner=2", {REDUCE, SCATTER}), ("dp=4,zero=1", {SCATTER}),
    ("dp=4,zero=2", {SCATTER}), ("dp=4,zero=3", {SCATTER}), ("dp=2,tp=2,zero=3", {SCATTER}),
    ("tp=4,paired=true", {SCATTER})])
def test_collectives_of_the_library_gather_the_same_and_make_the_same_sums(tmp_path, corpus, strategy, sums):
    by_calls = strategy if "dp" in strategy or "tp=4" in strategy else f"dp=2,{strategy}"
    job = job_of(tmp_path, corpus, run={"precision": "fp32", "steps": 2}, buckets=[(48, by_calls)])
    by_hosts = trained(job, tmp_path / "hosts", ["fabric.nccl=false"])
    gathered = trained(job, tmp_path / "gathered", STANDIN_NCCL_CALLS=str(tmp_path / "ordered"))
    assert gathered == by_hosts
    calls = calls_of(tmp_path / "ordered")
    assert calls[GATHER] > 0 and calls[SCATTER] == calls[REDUCE] == 0
    summed = trained(job, tmp_path / "summed", ["fabric.deterministic=false"],
                     STANDIN_NCCL_CALLS=str(tmp_path / "any"))
    calls = calls_of(tmp_path / "any")
    assert calls[GATHER] > 0 and {name for name in (SCATTER, REDUCE) if calls[name]} == sums
    for mine, theirs in zip(summed, by_hosts, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
        assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-5)
        assert [mine[key] for key in ("intra_bytes", "inter_bytes", "tokens")] == [
            theirs[key] for key in ("intra_bytes", "inter_bytes", "tokens")]


def test_collectives_stand_beside_messages_where_strategies_change(tmp_path, corpus, plain_by_hosts):
    job = job_of(tmp_path, corpus)
    summed = trained(job, tmp_path / "summed", ["fabric.deterministic=false", "fabric.strict=true"],
                     STANDIN_NCCL_CALLS=str(tmp_path / "calls"))
    assert all(calls_of(tmp_path / "calls")[name] > 0 for name in (GATHER, SCATTER, REDUCE, "ncclSend"))
    for mine, theirs in zip(summed, plain_by_hosts, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-9)


@pytest.mark.skipif(not tiny.MPI, reason="this build has no MPI")
def test_ranks_of_mpirun_use_it_too(tmp_path, corpus, plain_by_hosts):
    job = job_of(tmp_path, corpus)
    words = ["sh", "-c", f'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_RANK exec "$@"', "sh", tiny.ON_STANDIN, "train", job]
    result = tiny.run([*tiny.MPIRUN, "-n", RANKS, *words, "--out", tmp_path / "mpi"],
                      environment=tiny.ENVIRONMENT | {"SWITCHYARD_NCCL": LIBRARY})
    assert result.returncode == 0, result.stderr
    assert [{key: entry[key] for key in SAME} for entry in tiny.read_log(tmp_path / "mpi")] == plain_by_hosts


def test_a_missing_library_is_named_with_what_to_do(tmp_path, corpus):
    job = job_of(tmp_path, corpus)
    statuses, texts = ends(start(job, tmp_path / "out", SWITCHYARD_NCCL="/nowhere/libnccl.so.2"))
    assert all(statuses), texts
    assert "devices need NCCL to exchange data, but it can't be loaded: /nowhere/libnccl.so.2" in texts[0]
    assert "or set fabric.nccl = false" in texts[0]


def test_ranks_that_share_a_device_are_refused(tmp_path, corpus):
    statuses, texts = ends(start(job_of(tmp_path, corpus), tmp_path / "out", CUDA_VISIBLE_DEVICES="0"))
    assert 2 in statuses and set(statuses) <= {2, 3}, texts  # 3: another rank's message came first
    assert "rank 0 shares 1 CUDA device with 3 other ranks of its host" in texts[0]


@pytest.mark.parametrize("fault,words", [("init", "connecting channel"), ("async", "failed on the device: "),
                                         ("hang", "has exchanged nothing with ")])
def test_a_fault_ends_all_ranks_with_one_reason(tmp_path, corpus, fault, words):
    job = job_of(tmp_path, corpus)
    processes = start(job, tmp_path / "out", ["fabric.timeout=4 s"], STANDIN_NCCL_FAULT=fault,
                      STANDIN_NCCL_FAULT_RANK="1")
    statuses, texts = ends(processes)
    assert statuses == [3] * RANKS, texts
    assert any(words in text for text in texts), texts
    assert all(re.search(r"rank \d", text) for text in texts)


@pytest.mark.parametrize("fault,words", [("collective", "ncclAllGather: invalid argument: collective on purpose"),
                                         ("async", "failed on the device: "), ("hang", "has exchanged nothing with ")])
def test_a_fault_of_a_collective_ends_all_ranks_with_one_reason(tmp_path, corpus, fault, words):
    job = job_of(tmp_path, corpus, buckets=[(48, "dp=4,zero=3")])
    statuses, texts = ends(start(job, tmp_path / "out", ["fabric.timeout=4 s", "fabric.deterministic=false"],
                                 STANDIN_NCCL_FAULT=fault, STANDIN_NCCL_FAULT_RANK="1"))
    assert statuses == [3] * RANKS, texts
    assert all(re.search(r"rank \d", text) for text in texts)
    assert any(words in text for text in texts), texts


@pytest.mark.parametrize("deterministic", ["true", "false"])
def test_a_signal_to_one_rank_ends_all_after_the_same_step_with_a_checkpoint(tmp_path, corpus, deterministic):
    job = job_of(tmp_path, corpus, run={"steps": 100000, "save_last": True, "checkpoint_every": 0}, buckets=TWO)
    out, sets = tmp_path / "out", [f"fabric.deterministic={deterministic}"]
    processes = start(job, out, sets)
    tiny.wait_for_steps(processes[0], 2)
    processes[2].send_signal(signal.SIGTERM)
    statuses, texts = ends(processes)
    assert statuses == [128 + signal.SIGTERM] * RANKS, texts
    steps = len(tiny.read_log(out))
    assert f"SIGTERM: stopped after step {steps} of 100000\n" in texts[0]
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"step-{steps:08}"] and tiny.has_checkpoint(out)
    log = trained(job, out, sets, ["--resume", out, "--steps", steps + 2])
    assert [entry["step"] for entry in log] == list(range(1, steps + 3))


def test_a_rank_that_is_killed_ends_the_others(tmp_path, corpus):
    job = job_of(tmp_path, corpus, run={"steps": 1000})
    processes = start(job, tmp_path / "out", ["fabric.timeout=20 s"])
    tiny.wait_for_steps(processes[0], 2)
    processes[2].send_signal(signal.SIGKILL)
    began = time.monotonic()
    statuses, texts = ends(processes)
    assert statuses == [3, 3, -signal.SIGKILL, 3], texts
    assert all("rank 2" in text for text in (texts[1], texts[3])), texts
    assert time.monotonic() - began < tiny.HANG / 2
