"""`switchyard simulate`: its figures, its trace, and what it refuses."""

import json
import random
import re

import pytest
import tiny_runs as tiny

BUCKETS = [(48, "1,2,2"), (20, "4,1,1")]
KEYS = {"step_seconds", "seconds_of_steps", "buckets_of_steps", "compute_seconds", "communication_seconds",
        "overlap_seconds", "idle_seconds", "peak_bytes", "peak_bound_bytes", "checkpoint_copy_bytes",
        "activation_bytes", "usable_bytes", "fits", "model_flops_utilization"}


def simulate(job, *arguments):
    return tiny.run([tiny.PROGRAM, "simulate", job, *arguments])


def figures(job, *arguments):
    result = simulate(job, "--json", *arguments)
    assert result.returncode in (0, 2) and result.stdout, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert result.returncode == (0 if found["fits"] else 2)
    return found


@pytest.fixture
def job(tmp_path, corpus):
    return tiny.write_job(tmp_path / "job.toml", corpus, BUCKETS, run={"ranks": 4, "precision": "fp32"})


@pytest.mark.parametrize("cluster", ["demo", "a100-80g"])
def test_the_parts_of_a_step_sum_to_it_and_memory_is_that_of_the_run(job, tmp_path, cluster):
    found = figures(job, "--cluster", cluster, "--set", "run.device=cpu")
    assert found.keys() == KEYS
    parts = found["compute_seconds"] + found["communication_seconds"] - found["overlap_seconds"] + found["idle_seconds"]
    assert (parts == pytest.approx(found["step_seconds"], rel=1e-9)
            and min(found[key] for key in KEYS - {"peak_bytes", "activation_bytes", "seconds_of_steps",
                                                  "buckets_of_steps", "fits", "checkpoint_copy_bytes"}) > 0)
    assert (0 < found["model_flops_utilization"] < 1
            and all(a < p for a, p in zip(found["activation_bytes"], found["peak_bytes"])))
    log = tiny.train(job, "--out", tmp_path / "out", "--steps", 1, "--set", "run.memory_budget=\"1 GiB\"")
    assert found["peak_bytes"] == log[0]["predicted_peak_bytes_per_rank"]
    assert found["peak_bound_bytes"] == max(log[0]["peak_bound_bytes_per_rank"])


def test_a_cluster_says_whose_kernels_compute_and_so_in_which_precision(corpus, tmp_path):
    job = tiny.write_job(tmp_path / "job.toml", corpus, BUCKETS, run={"ranks": 4, "precision": "auto"})

    def found(*sets):
        return figures(job, "--cluster", "a100-80g", *[word for key in sets for word in ("--set", f"run.{key}")])

    assert found() == found("device=cuda") == found("device=cuda", "precision=bf16")
    assert found("device=cpu") == found("device=cpu", "precision=fp32") != found("device=cpu", "precision=bf16")
    assert found("device=cpu", "precision=bf16")["peak_bytes"] != found()["peak_bytes"]
    planned = tmp_path / "plan.toml"
    plan = tiny.run([tiny.PROGRAM, "plan", job, "--cluster", "a100-80g", "--seconds", 1, "--out", planned])
    assert plan.returncode == 0 and 'device = "cuda"' in planned.read_text(), plan.stderr


def test_a_job_fits_where_training_takes_it(job, tmp_path):
    """With what streams may need that run side by side, and in later steps, too."""
    steps = ["--cluster", "demo", "--steps", 3]
    bound = figures(job, *steps, "--set", "run.memory_budget=\"1 KiB\"")["peak_bound_bytes"]
    enough, short = (f"run.memory_budget=\"{bytes} B\"" for bytes in (bound, bound - 1))
    assert figures(job, *steps, "--set", enough)["fits"] and not figures(job, *steps, "--set", short)["fits"]
    assert "of the job's 1 KiB" in simulate(job, *steps, "--set", "run.memory_budget=\"1 KiB\"").stdout
    tiny.train(job, "--out", tmp_path / "out", "--steps", 3, "--set", enough)
    refused = tiny.run(tiny.command(job, "--steps", 3, "--set", short))
    assert refused.returncode == 2 and "1 B more than the memory budget" in refused.stderr


def test_the_idle_time_of_a_rank_that_never_waits_is_not_negative(tmp_path, corpus):
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(48, "1,1,1")], run={"ranks": 1})
    text = simulate(job, "--cluster", "demo").stdout
    assert "-0" not in text and "idle" in text and "1 host of " in text


def test_rounding_is_no_idle_time():
    """The ranks of one replica wait for each other within collectives only."""
    found = tiny.run([tiny.PROGRAM, "simulate", "--model", "7b", "--context", "8192", "--strategy", "tp=3,ulysses=2",
                      "--ranks", "6", "--cluster", "h100-80g", "--json"])
    assert json.loads(found.stdout.splitlines()[-1])["idle_seconds"] == 0, found.stdout


@pytest.mark.parametrize("strategy", ["dp=4,zero=3", "dp=4,zero=2", "depth=2,dp=2",
                                      "dp=2,pp=2,zero=3,schedule=zeropp,every=2", "tp=4"])
def test_without_overlap_nothing_is_communicated_while_a_rank_computes(tmp_path, strategy):
    """But for sends between stages."""
    model = {"hidden_size": 4096, "layers": 4, "heads": 32, "ffn_size": 11008, "vocab_size": 32000}
    job = tiny.write_job(tmp_path / "job.toml", tmp_path / "no-data", [(4096, strategy)], model=model,
                         batch={"context": 4096, "lengths": "full"}, run={"ranks": 4, "precision": "bf16"})
    beside, apart = (figures(job, "--cluster", "a100-80g", "--set", f"run.overlap={value}",
                             "--set", f"run.overlap_transfers={value}") for value in ("true", "false"))
    assert apart["step_seconds"] > 1.03 * beside["step_seconds"]
    if "zero=2" not in strategy:  # parameters that a step begins with come unit by unit
        assert apart["overlap_seconds"] < 0.15 * beside["overlap_seconds"], (apart, beside)


def test_a_faster_cluster_is_faster_and_more_steps_are_averaged(job):
    assert figures(job, "--cluster", "h100-80g")["step_seconds"] < figures(job, "--cluster", "demo")["step_seconds"]
    one, three = figures(job, "--cluster", "demo"), figures(job, "--cluster", "demo", "--steps", 3)
    assert (one["seconds_of_steps"] == [one["step_seconds"]] == three["seconds_of_steps"][:1]
            and three["step_seconds"] != one["step_seconds"])
    assert sum(three["seconds_of_steps"]) == pytest.approx(3 * three["step_seconds"], rel=1e-12)


def test_the_share_of_the_peak_is_that_of_all_steps_together(job):
    """So three steps have as many more flops than one on every cluster."""
    def flops(cluster, steps):  # over the cluster's rate
        found = figures(job, "--cluster", cluster, "--steps", steps)
        return found["model_flops_utilization"] * sum(found["seconds_of_steps"])

    more = [flops(cluster, 3) / flops(cluster, 1) for cluster in ("demo", "h100-80g")]
    assert more[0] == pytest.approx(more[1], rel=1e-9)


def test_what_a_device_lacks_beside_its_reserve_is_reported(job, tmp_path):
    text, cluster = (tiny.ROOT / "clusters" / "demo.toml").read_text(), tmp_path / "small.toml"
    peak = max(figures(job, "--cluster", "demo")["peak_bytes"])

    def found(usable):
        cluster.write_text(text.replace('memory = "216 MiB"', f"memory = {usable + 2**20}\nreserve = \"1 MiB\""))
        return figures(job, "--cluster", cluster), simulate(job, "--cluster", cluster).stdout

    fits, told = found(peak)
    assert fits["fits"] and fits["usable_bytes"] == peak and "of which 1 MiB are reserved" in told
    assert re.match(r"Step .* \(.* tokens/s, \d+% of peak\); fits: .* of .*\n", told), told
    small, told = found(peak // 2)
    assert not small["fits"] and re.match(r"Does NOT fit: .* on .*, .* too much\. Step .* if it did\n", told), told


def test_the_trace_has_a_process_for_each_rank_that_works_within_the_step(job, tmp_path):
    found = figures(job, "--cluster", "demo", "--trace", tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    work = [event for event in events if event["ph"] == "X"]
    assert ({event["pid"] for event in work} == {0, 1, 2, 3}
            and {event["cat"] for event in work} == {"compute", "communication"})
    assert max(event["ts"] + event["dur"] for event in work) == pytest.approx(1e6 * found["step_seconds"], abs=1 / 16)


@pytest.mark.parametrize("cluster, told", [
    ("", "no cluster is named. "
         "Give --cluster one of a100-80g, a800-80g, demo, h100-80g, h200-141g, or a cluster file."),
    ("nowhere", "is neither a file nor a known name"),
    ("demo", "don't fit on 1 host")], ids=["none", "unknown", "too small"])
def test_an_impossible_cluster_is_reported(tmp_path, corpus, cluster, told):
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(48, "8,1,1")], run={"ranks": 8})
    result = simulate(job, *(["--cluster", cluster] if cluster else []))
    assert result.returncode == 2 and told in result.stderr and result.stdout == "", result.stderr


def pipeline_step(path, cluster, model, micro_batches, context, pp, schedule, cap=0, tp=1):
    """Seconds of a step of full documents, one in each micro-batch."""
    limit = f"activation_cap = {cap}, " if cap else ""
    path.write_text(f"""
[model]
{"".join(f"{key} = {json.dumps(value)}{chr(10)}" for key, value in model.items())}
[batch]
sequences = {micro_batches}
context = {context}
lengths = "full"
[[bucket]]
max_length = {context}
strategy = {{dp = 1, tp = {tp}, pp = {pp}, schedule = "{schedule}", {limit}micro_batch_sequences = 1}}
[run]
ranks = {tp * pp}
precision = "bf16"
""")
    return figures(path, "--cluster", cluster)["step_seconds"]


@pytest.mark.parametrize("micro_batches", [4, 8, 12, 16, 24, 48])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_split_gradients_never_lose_to_1f1b_of_the_same_memory_nor_to_a_smaller_cap(tmp_path, architecture,
                                                                                    micro_batches):
    """The head takes as long as many layers."""
    model = {"architecture": architecture, "hidden_size": 1024, "layers": 24, "heads": 16, "vocab_size": 51200}
    if architecture == "llama":
        model["ffn_size"] = 2816

    def step(schedule, cap=0):
        return pipeline_step(tmp_path / "job.toml", "a100-80g", model, micro_batches, 2048, 4, schedule, cap)

    usual = step("1f1b")
    for schedule, caps in ("zero-bubble", [4, 5, 6, 8]), ("zb-v", [8, 10, 12, 16]):
        steps = [step(schedule, cap) for cap in caps]
        assert steps[0] < usual, (schedule, steps, usual)
        # Steps of equal length may differ slightly where a transfer is at another time.
        assert all(later <= before * (1 + 1e-4) for before, later in zip(steps, steps[1:])), (schedule, caps, steps)


def drawn_pipeline(path, draw, hidden_sizes, tp=1):
    """A random model's pipeline: its stages, and seconds of a step by schedule and cap."""
    hidden, pp = draw.choice(hidden_sizes), draw.choice([2, 4, 8])
    model = {"architecture": draw.choice(["gpt2", "llama"]), "hidden_size": hidden, "heads": hidden // 64,
             "layers": 2 * pp * draw.choice([1, 2, 3]), "vocab_size": draw.choice([8192, 32000, 51200, 128256])}
    if model["architecture"] == "llama":
        model["ffn_size"] = hidden * 11 // 4
    cluster, context = draw.choice(["a100-80g", "h100-80g", "h200-141g"]), draw.choice([1024, 2048, 8192])
    micro_batches = pp * draw.choice([1, 2, 3, 6, 10])
    return pp, lambda schedule, cap=0: pipeline_step(path, cluster, model, micro_batches, context, pp, schedule, cap,
                                                     tp)


@pytest.mark.parametrize("seed", range(20))
def test_split_gradients_never_lose_to_1f1b_whatever_sets_the_pace(tmp_path, seed):
    """Products, memory, or the start of many small kernels, on devices of which the job knows nothing."""
    pp, step = drawn_pipeline(tmp_path / "job.toml", random.Random(seed), [512, 768, 1024, 2048, 4096])
    usual, split, turned = step("1f1b"), step("zero-bubble"), step("zb-v")
    assert split < usual and step("zero-bubble", 2 * pp) <= split * (1 + 1e-4)
    # Here the first stage also updates the head's table.
    assert turned < usual * 1.005 and step("zb-v", 4 * pp) <= turned * (1 + 1e-4)


@pytest.mark.parametrize("seed", range(15))
def test_nor_with_tensor_parallelism_whose_sums_1f1b_hides_under_gradients_of_weights(tmp_path, seed):
    draw = random.Random(seed)
    pp, step = drawn_pipeline(tmp_path / "job.toml", draw, [1024, 2048, 4096, 8192], tp=draw.choice([2, 4, 8]))
    split = step("zero-bubble")
    # How long the sums take is an estimate for the schedule, so one with more memory may be a little longer here.
    assert split < step("1f1b") and step("zero-bubble", 2 * pp) <= split * 1.005


def test_steps_choose_the_buckets_with_which_their_documents_take_the_least_time(tmp_path, corpus):
    def with_buckets(name, buckets, **run):
        return tiny.write_job(tmp_path / f"{name}.toml", corpus, buckets, run={"ranks": 4, "precision": "fp32", **run})

    both = with_buckets("both", [(48, "1,4,1"), (48, "4,1,1"), (20, "2,2,1")], choose_buckets=True)
    arguments = ["--cluster", "a800-80g", "--steps", "4"]
    chosen = figures(both, *arguments)
    fixed = [figures(with_buckets(f"fixed-{i}", buckets), *arguments)["seconds_of_steps"]
             for i, buckets in enumerate([[(48, "1,4,1")], [(48, "1,4,1"), (20, "2,2,1")], [(48, "4,1,1")],
                                          [(48, "4,1,1"), (20, "2,2,1")]])]
    for step, seconds in enumerate(chosen["seconds_of_steps"]):
        assert seconds <= min(fixed[0][step], fixed[1][step]), "the same home"
        assert seconds == pytest.approx(min(of[step] for of in fixed), rel=0.02)
    assert all(used in ([0], [1], [0, 2], [1, 2]) for used in chosen["buckets_of_steps"])
    assert f"buckets that steps chose: {chosen['buckets_of_steps'][0]}" in simulate(both, *arguments).stdout
