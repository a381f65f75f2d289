"""`switchyard plan`: what it chooses, writes and refuses."""

import itertools
import json
import os
import re

import pytest
import tiny_runs as tiny

KEYS = {"chosen", "order", "step_seconds", "planned_seconds", "own", "fits", "sequences", "tokens_per_second",
        "proven", "gap", "candidates", "pruned", "unexamined", "seconds"}


# Two hosts of four devices, 800 Mbit/s inside and 200 Mbit/s between them.
SLOW_HOSTS = """
name = "slow"
hosts = 2
devices_per_host = 4
overlap_slowdown = 1.0
[device]
name = "core"
memory = "120 MiB"
memory_bandwidth = "70 GB/s"
launch = "1 us"
memory_curve = [["64 KiB", 1.0]]
[device.fp32]
matmul = "100 GFLOP/s"
matmul_curve = [[1e5, 0.3], [1e6, 0.5], [1e8, 0.8]]
[links.intra_host]
latency = "10 us"
bandwidth = "100 MB/s"
[links.inter_host]
latency = "50 us"
bandwidth = "25 MB/s"
shared_by = 4
"""


def write_job(path, lengths="full", context=512, **sections):
    usual = {"run": {"ranks": 4, "precision": "fp32"},
             "batch": {"sequences": 8, "context": context, "lengths": str(lengths)}}
    return tiny.write_job(path, path.parent / "no_data", [], **(usual | sections))


def plan(job, *arguments, cluster="demo"):
    return tiny.run([tiny.PROGRAM, "plan", job, "--cluster", cluster, *arguments])


def figures(command, job, *arguments, cluster="demo"):
    result = tiny.run([tiny.PROGRAM, command, job, "--cluster", cluster, "--json", *arguments])
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def flat(text):
    """Without line breaks."""
    return " ".join(text.split())


def plans_of(lines):
    """Every row of figures with the plan below it, whose parts stand on lines of their own, in turn."""
    found, parts = [], []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if parts and indent >= parts[0][0] + 4:
            parts[-1] = (parts[-1][0], f"{parts[-1][1]} {line.strip()}")
        elif re.match(r" +(to \d+: |or to |in the order |keys of |one degree |optimizer state |encoded)", line):
            parts.append((indent, line.strip()))
            found[-1] = (found[-1][0], "; ".join(part for _, part in parts))
        else:
            found.append((line, ""))
            parts = []
    return found


@pytest.fixture
def lengths(tmp_path):
    """Nine documents of ten are short."""
    path = tmp_path / "lengths.json"
    path.write_text(json.dumps({"bins": [[20, 200, 9], [400, 513, 1]]}))
    return path


@pytest.fixture
def job(tmp_path, lengths):
    return write_job(tmp_path / "job.toml", lengths)


def test_json_has_the_chosen_buckets_and_the_counts(job):
    found = figures("plan", job)
    assert found.keys() == KEYS
    assert found["step_seconds"] > 0 and found["seconds"] > 0 and 0 < found["pruned"] < found["candidates"]
    chosen = found["chosen"]
    assert sorted(found["order"]) == list(range(len(chosen)))
    lengths = [bucket["max_length"] for bucket in chosen]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] == 512
    for bucket in chosen:
        assert bucket.keys() == {"max_length", "strategy", "recompute", "schedule", "micro_batch_tokens", "full"}
        assert bucket["micro_batch_tokens"] >= bucket["max_length"] and bucket["full"]["groups"]
    assert figures("plan", job)["chosen"] == chosen, "the same again"


def test_where_the_model_takes_plans_for_too_small_one_that_fits_is_found(tmp_path):
    """What error feedback keeps is not in the planner's model of memory: here all that it finds is too large."""
    cluster = tmp_path / "slow.toml"
    cluster.write_text(SLOW_HOSTS)
    model = {"hidden_size": 256, "layers": 6, "heads": 8, "ffn_size": 512, "vocab_size": 1000}
    job = write_job(tmp_path / "job.toml", "commoncrawl", context=2048, model=model,
                    batch={"sequences": 32, "context": 2048, "lengths": "commoncrawl"},
                    run={"ranks": 8, "precision": "fp32"}, compression={"gradients": "top-1-of-32", "pipeline": "int8"})
    planned = tmp_path / "planned.toml"
    found = plan(job, "--seconds", 0, "--set", "run.memory_budget=36MiB", "--out", planned, cluster=cluster)
    assert found.returncode == 0 and "turned out too large" in flat(found.stdout), found.stdout + found.stderr
    assert figures("simulate", planned, cluster=cluster)["fits"], found.stdout


def test_on_ranks_that_powers_of_two_do_not_fill_none_is_left_idle(tmp_path):
    cluster = tmp_path / "six.toml"
    cluster.write_text(SLOW_HOSTS.replace("hosts = 2", "hosts = 1").replace(
        "devices_per_host = 4", "devices_per_host = 6").replace(
        'bandwidth = "100 MB/s"', 'bandwidth = "10 GB/s"').replace('"120 MiB"', '"1 GiB"'))
    job = write_job(tmp_path / "job.toml", context=4096, batch={"sequences": 1, "context": 4096, "lengths": "full"},
                    model={"hidden_size": 64, "layers": 2, "heads": 8, "ffn_size": 128, "vocab_size": 100},
                    run={"ranks": 6, "precision": "fp32"})
    chosen = figures("plan", job, "--seconds", 0, cluster=cluster)
    for strategy in ("ring=6", "ulysses=6", "tp=6", "ring=2,ulysses=3", "ring=4"):
        other = figures("simulate", job, "--strategy", strategy, cluster=cluster)
        assert chosen["step_seconds"] <= other["step_seconds"] * (1 + 1e-9), (strategy, chosen["chosen"][0]["strategy"])


def test_the_copy_of_a_checkpoint_is_told_unless_training_waits(job, lengths, tmp_path):
    saving = write_job(tmp_path / "saving.toml", lengths, run={"ranks": 4, "precision": "fp32", "checkpoint_every": 5})
    planned = tmp_path / "planned.toml"
    chosen = plan(saving, "--out", planned)
    told = (r"While a checkpoint is written, its copy takes up to [\d.]+ [KM]iB more on a rank; "
            "where there is no room for it, ")
    assert re.search(told, flat(chosen.stdout)), chosen.stdout + chosen.stderr
    assert figures("simulate", planned)["checkpoint_copy_bytes"] > 0
    waits = ["--set", "run.async_save=false"]
    assert figures("simulate", planned, *waits)["checkpoint_copy_bytes"] == 0
    for command in [["simulate", planned, "--cluster", "demo"], ["show", "plan", planned]]:
        assert re.search(told, flat(tiny.run([tiny.PROGRAM, *command]).stdout))
        assert "checkpoint" not in tiny.run([tiny.PROGRAM, *command, *waits]).stdout


def test_of_a_range_of_batches_the_one_with_most_tokens_a_second_is_chosen(job, tmp_path):
    alone = {size: figures("plan", job, "--set", f"batch.sequences={size}") for size in (4, 8, 16, 24)}
    assert [alone[size]["sequences"] for size in alone] == [*alone]
    best = max(alone, key=lambda size: (alone[size]["tokens_per_second"], -size))
    found = figures("plan", job, "--sequences", "4..24", "--out", tmp_path / "planned.toml")
    assert found["sequences"] == best and found["step_seconds"] == alone[best]["step_seconds"]
    assert f"sequences = {best}\n" in (tmp_path / "planned.toml").read_text()
    assert figures("plan", job, "--sequences", "4")["sequences"] == 4
    told = [line for line in plan(job, "--sequences", "4..24").stdout.splitlines() if "documents a step: " in line]
    assert [line.split()[0] for line in told] == ["4", "8", "16", "24"]


@pytest.mark.parametrize("words", ["0", "8..4", "0..4", "4..", "4..8x", "4-8"])
def test_what_is_no_number_of_documents_is_refused(job, words):
    result = plan(job, "--sequences", words)
    assert result.returncode == 2 and result.stderr.strip().endswith(
        f"--sequences {words} is no number of documents a step. Write one, or LOW..HIGH, such as 256..1024."
    ), result.stderr


@pytest.mark.parametrize("words", ["1..262145", "262145..999999999999", "262145"])
def test_more_documents_than_a_step_can_have_are_refused_before_anything_is_planned(job, words):
    result = plan(job, "--sequences", words)
    assert result.returncode == 2 and result.stderr.strip().endswith(
        f"--sequences {words}: batch.sequences = {words.split('..')[-1]} must be at most 262144."), result.stderr


def test_only_degrees_that_are_allowed_are_chosen():
    def run(context, *options):
        return tiny.run([tiny.PROGRAM, "plan", "--model", "7b", "--context", context, "--lengths", "commoncrawl",
                         "--cluster", "h100-80g:2x8", "--seconds", 0, "--json", *options])

    def degrees(*arguments):
        result = run(*arguments)
        assert result.returncode == 0, result.stderr
        chosen = json.loads(result.stdout.splitlines()[-1])["chosen"]
        groups = [group for bucket in chosen for group in bucket["full"]["groups"]]
        meshes = [stage["mesh"] for group in groups for stage in group["stages"]]
        axes = {axis for mesh in meshes for axis, size in mesh.items() if size > 1}
        return axes | {"pp" for group in groups if len(group["stages"]) > 1}

    assert {"ulysses", "ring"} <= degrees(131072)
    assert degrees(65536, "--degrees", "tp,pp") <= {"data", "outer", "pp"}
    assert degrees(8192, "--degrees", "tp,ulysses") <= {"data", "outer", "ulysses"}, "stages are quicker"
    refused = run(8192, "--degrees", "tp,cp")
    assert refused.returncode == 2, refused.stderr
    assert "--degrees: cp not in {dp,tp,pp,ring,ulysses,depth,inner}" in refused.stderr


@pytest.mark.parametrize("cluster, ranks, hidden, close", [("demo", 4, 32, 0.25), ("a100-80g", 16, 1024, 0.1)])
def test_the_planned_job_simulates_as_it_is_and_takes_about_as_long_as_announced(tmp_path, lengths, cluster, ranks,
                                                                                 hidden, close):
    """On the demo's cluster computing and transfers take turns, which the planner's model leaves out."""
    model = tiny.MODEL | {"hidden_size": hidden, "ffn_size": 3 * hidden}
    job = write_job(tmp_path / "job.toml", lengths, model=model, run={"ranks": ranks, "precision": "fp32"})
    announced = figures("plan", job, "--out", tmp_path / "planned.toml", cluster=cluster)
    planned = (tmp_path / "planned.toml").read_text()
    assert planned.count("[[bucket]]") == len(announced["chosen"]) and "memory_budget" in planned
    simulated = figures("simulate", tmp_path / "planned.toml", cluster=cluster)
    assert simulated["step_seconds"] == pytest.approx(announced["step_seconds"], rel=1e-9), "the simulator's time"
    assert announced["planned_seconds"] == pytest.approx(announced["step_seconds"], rel=close)
    again = plan(tmp_path / "planned.toml", cluster=cluster)
    assert again.returncode == 0, again.stderr
    assert len({name for name, *_ in rows_of(again)}) == len({row[-1] for row in rows_of(again)}), "no plan twice"


def rows_of(result):
    """What each plan of the table is, its step, how much slower it is (none for the chosen one), memory, and plan."""
    table = plans_of(result.stdout.split("\n\n")[1].splitlines()[1:])
    return [(*re.match(r"(.*?)  +(\S+ \S+?) +(?:([+-]\d+)%)? +(\S+ \S+)$", row).groups(), plan) for row, plan in table]


def test_the_first_line_is_the_verdict_and_the_table_has_the_plans_to_compare():
    result = plan(tiny.ROOT / "demo" / "job.toml")
    result.stdout = result.stdout[result.stdout.index("Step "):]
    assert re.match(r"Step \S+ \S+ \(\S+ tokens/s, \d+% of peak\), .* of the budget of .*; "
                    r"(\d+% quicker than the best single strategy|one strategy is fastest: switching gains nothing); "
                    r"limited by ", flat(result.stdout)), result.stdout
    rows = rows_of(result)
    assert [row[0] for row in rows][0] == "chosen" and rows[0][2] is None
    assert {row[0] for row in rows[1:]} <= {"the job's own", "best single strategy", "best of 2 buckets",
                                            "best of 3 buckets", "best of 4 buckets", "least memory within 5%"}
    assert all(int(row[2]) >= 0 for row in rows[1:]) and len({row[-1] for row in rows}) == len(rows) > 1
    has_single = "best single strategy" in [row[0] for row in rows]
    assert has_single == ("quicker than the best single" in flat(result.stdout))


def mebibytes(text):
    number, unit = text.split()
    return float(number) * {"KiB": 2**-10, "MiB": 1, "GiB": 2**10}[unit]


def test_the_table_has_the_jobs_own_buckets_the_best_of_two_and_the_plan_of_least_memory_that_is_nearly_as_quick():
    """The demo's buckets are not the quickest."""
    rows = {row[0]: row[1:] for row in rows_of(plan(tiny.ROOT / "demo" / "job.toml", "--lengths", "github",
                                                    "--degrees", "dp,tp,pp,ring"))}
    assert [*rows] == ["chosen", "the job's own", "best of 2 buckets", "least memory within 5%"]
    assert rows["the job's own"][-1].startswith("to 4096: 1,2,2; to 2048: 2,2,1")
    assert rows["best of 2 buckets"][-1].count("to ") == 2
    least = mebibytes(rows["least memory within 5%"][2])
    assert int(rows["least memory within 5%"][1]) <= 5
    assert all(least < mebibytes(row[2]) for name, row in rows.items() if name != "least memory within 5%")


def test_a_plan_that_is_listed_can_be_given_as_a_strategy():
    """Such as "to 4096: tp=2,ring=2; to 1024: dp=4"; the order is another key of the job."""
    demo, options = tiny.ROOT / "demo" / "job.toml", ("--lengths", "github")
    rows = {row[0]: row[1:] for row in rows_of(plan(demo, *options, "--degrees", "dp,tp,pp,ring"))}
    text = rows["least memory within 5%"][-1]
    strategies = "; ".join(part for part in text.split("; ") if part.startswith("to "))
    assert strategies.count("to ") == text.count("to ") > 0, text
    shown = tiny.run([tiny.PROGRAM, "show", "plan", demo, *options, "--strategy", strategies])
    assert shown.returncode == 0, shown.stderr


def test_the_report_of_a_run_of_a_planned_job_has_the_plans_that_were_compared(job, tmp_path, corpus):
    """plan --out writes them beside the job. train takes them into the run's folder, unless the job was changed."""
    corpus_job = write_job(tmp_path / "own.toml", data={"path": str(corpus)}, context=48,
                           run={"ranks": 4, "precision": "fp32", "steps": 1})
    planned, beside = tmp_path / "planned.toml", tmp_path / "planned.plan.json"
    assert plan(corpus_job, "--out", planned).returncode == 0
    tiny.train(planned, "--out", tmp_path / "run")
    kept = (tmp_path / "run" / "plan.json").read_text()
    assert kept == beside.read_text() and len(json.loads(kept)["candidates"]) > 1
    assert tiny.run([tiny.PROGRAM, "report", tmp_path / "run"]).returncode == 0
    page = (tmp_path / "run" / "report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    assert [candidate["chosen"] for candidate in data["runs"][0]["candidates"]].count(True) == 1
    headline = " ".join(data["runs"][0]["headline"])
    assert re.search("single strategy|One strategy for all", headline), headline
    changed = tiny.run(tiny.command(planned, "--out", tmp_path / "other", "--set", "batch.sequences=4"))
    assert changed.returncode == 0 and not (tmp_path / "other" / "plan.json").exists()
    assert f"{beside}: model, batches or buckets are not those of the job now" in changed.stderr


def listed_by(result):
    return [(row, plan) for row, plan in plans_of(result.stdout.splitlines()) if re.match(r" *\d+ +[\d.]+ \w+ ", row)]


def test_more_plans_are_listed_with_the_best_first(job):
    listed = listed_by(plan(job, "--top", 3))
    assert [row.split()[0] for row, _ in listed] == ["1", "2", "3"]
    assert all(plan.startswith("to 512: ") for _, plan in listed)


def degrees_by_length(line):
    """Bounds, the longest first, and what documents up to them run under; equal neighbours are one."""
    runs = []
    for bound, degrees in re.findall(r"to (\d+): ([^ ;]+?)(?:,? |;|$)", line):
        if not runs or runs[-1][1] != degrees:
            runs.append((bound, degrees))
    return tuple(runs)


def test_one_degree_of_the_ring_for_all_documents_is_taken_where_it_is_quicker(tmp_path):
    """A degree for each document follows the times of a nominal device."""
    planned = tmp_path / "planned.toml"
    options = ["--model", "7b", "--context", "131072", "--ranks", "16", "--sequences", "48", "--lengths", "commoncrawl",
               "--degrees", "dp,tp,ring"]
    result = tiny.run([tiny.PROGRAM, "plan", *options, "--cluster", "h100-80g", "--seconds", "0", "--out", planned])
    assert "one degree of the ring for all documents (ring_degree=uniform)" in result.stdout, result.stdout
    one, text = figures("simulate", planned, cluster="h100-80g"), planned.read_text()
    planned.write_text(text.replace('ring_degree = "uniform"', 'ring_degree = "document"'))
    assert one["step_seconds"] < figures("simulate", planned, cluster="h100-80g")["step_seconds"]


@pytest.mark.parametrize("options, tokens, in_pairs, others", [
    (["--model", "7b", "--context", "8192", "--lengths", "github", "--degrees", "tp", "--cluster", "h100-80g"], 8192,
     "micro-batches in pairs, of half as many tokens where documents fit (paired=true)",
     [("false", 8192), ("false", 16384)]),
    (["--model", "3b", "--context", "32768", "--lengths", "github", "--degrees", "ulysses", "--cluster", "h200-141g"],
     65536, "micro-batches in pairs (paired=true)", [("false", 65536), ("false", 32768), ("true", 32768)])],
                         ids=["halves", "of-the-same-size"])
def test_micro_batches_in_pairs_are_taken_where_they_are_quicker(tmp_path, options, tokens, in_pairs, others):
    planned = tmp_path / "planned.toml"
    result = tiny.run([tiny.PROGRAM, "plan", *options, "--ranks", "8", "--sequences", "64", "--seconds", "0",
                       "--out", planned])
    assert in_pairs in flat(result.stdout), result.stdout
    pairs, text = figures("simulate", planned, cluster=options[-1]), planned.read_text()
    assert "paired = true" in text and f"micro_batch_tokens = {tokens}" in text, text
    for paired, size in others:
        planned.write_text(text.replace("paired = true", f"paired = {paired}")
                           .replace(f"micro_batch_tokens = {tokens}", f"micro_batch_tokens = {size}"))
        assert pairs["step_seconds"] < figures("simulate", planned, cluster=options[-1])["step_seconds"]


def test_plans_that_are_listed_differ(job):
    """On one host neighbours among the ranks make no plan."""
    plans = [plan for _, plan in listed_by(plan(job, "--top", 12))]
    assert len(plans) > 4 and len({degrees_by_length(one) for one in plans}) == len(plans), plans


def test_the_jobs_own_buckets_are_the_answer_where_they_are_quicker(tmp_path):
    """Micro-batches of 60 documents aren't searched: their tokens are no doubling of the longest document's."""
    lengths = tmp_path / "lengths.json"
    lengths.write_text(json.dumps({"bins": [[300, 301, 1]]}))
    batch = {"sequences": 480, "context": 300, "lengths": str(lengths)}
    text = write_job(tmp_path / "job.toml", batch=batch).read_text()
    text += "\n[[bucket]]\nmax_length = 300\n"
    without = figures("plan", tmp_path / "job.toml")
    assert not without["own"]
    (tmp_path / "own.toml").write_text(text + "strategy = {dp = 4, tp = 1, pp = 1, micro_batch_tokens = 18000}\n")
    found = figures("plan", tmp_path / "own.toml", "--out", tmp_path / "planned.toml")
    assert found["own"] and found["step_seconds"] < without["step_seconds"]
    assert found["chosen"][0]["micro_batch_tokens"] == 18000
    assert "micro_batch_tokens = 18000" in (tmp_path / "planned.toml").read_text()
    (tmp_path / "slow.toml").write_text(text + "strategy = {dp = 1, tp = 1, pp = 4, micro_batch_tokens = 300}\n")
    slow = figures("plan", tmp_path / "slow.toml")
    assert not slow["own"] and slow["chosen"] == without["chosen"]
    assert "the job's own" in [name for name, *_ in rows_of(plan(tmp_path / "slow.toml"))]


OWN = [[("1,2,2", 4096), ("2,2,1", 2048), ("4,1,1", 1024)], [("1,1,4", 4096), ("2,1,2", 2048)],
       [("1,2,2", 4096)], [("2,2,1", 4096)], [("1,4,1", 4096)]]


def test_devices_that_slow_each_other_are_planned_as_they_are_simulated(tmp_path):
    """Both models rank the demo's own buckets, single strategies and what is chosen alike, and the simulator's quickest
    is the answer. Where the planner took devices for as quick with idle neighbours as with busy ones, pipelines were up
    to 40% slower in it."""
    lengths = tmp_path / "lengths.json"
    lengths.write_text(json.dumps({"bins": [[20, 1024, 90], [1024, 2048, 7], [2048, 4097, 3]]}))
    demo = (tiny.ROOT / "clusters" / "demo.toml").read_text()
    cluster = tmp_path / "cores.toml"
    text = (tiny.ROOT / "demo" / "job.toml").read_text()
    text = text.replace("tokens = 16384\n", f'tokens = 16384\nlengths = "{lengths}"\n')
    head, tail = text[:text.index("[[bucket]]")], text[text.index("[optimizer]"):]
    for profile in ["alone_speedup = 2.0", 'alone_speedup = 1.6\nlockstep_curve = [["1 ms", 0.6], ["100 ms", 0.9]]']:
        cluster.write_text(demo.replace("[device]\n", f"[device]\n{profile}\n"))
        times = {}
        for own in OWN:
            buckets = "".join(f'[[bucket]]\nmax_length = {length}\nstrategy = "{strategy}"\n'
                              for strategy, length in own)
            (tmp_path / "job.toml").write_text(head + buckets + tail)
            result = plan(tmp_path / "job.toml", "--top", 10, cluster=cluster)
            printed = result.stdout
            listed = [(*re.match(r" +\d+ +([\d.]+) s +([\d.]+) s$", row).groups(), name)
                      for row, name in listed_by(result)]
            assert len(listed) >= 8, printed
            simulated = [float(seconds) for seconds, _, _ in listed]
            assert simulated == sorted(simulated), printed
            [mine] = [(*re.search(r"([\d.]+) s simulated, ([\d.]+) s planned", row).groups(), name)
                      for row, name in plans_of(printed.splitlines()) if row.startswith("The job's own buckets: ")]
            assert simulated[0] <= float(mine[0]), printed
            times |= {name: (float(a), float(b)) for a, b, name in [*listed, mine]}
        for name, (simulated, planned) in times.items():
            # Rings wait for one another in each attention.
            assert planned == pytest.approx(simulated, rel=0.03 if "ring" in name else 0.01), name
        for a, b in itertools.combinations(times, 2):
            if times[a][0] < 0.98 * times[b][0]:
                assert times[a][1] < times[b][1], (a, b)
        assert max(times.values())[0] > 1.1 * min(times.values())[0], "plans differ"


def test_long_documents_on_rings_are_planned_as_they_are_simulated():
    """Most gradients leave while the last backward pass computes, of which a pipeline with long documents has few.
    Where the planner took all of them to leave after it, it was 27 to 30% slower than the simulator."""
    result = tiny.run([tiny.PROGRAM, "plan", "--model", "7b", "--context", "262144", "--lengths", "commoncrawl",
                       "--sequences", "48", "--cluster", "h100-80g", "--ranks", "16", "--degrees", "ring,ulysses",
                       "--buckets", "1", "--seconds", "0", "--top", "6"])
    rings = [re.match(r" +\d+ +([\d.]+) ms +([\d.]+) ms$", row).groups()
             for row, name in listed_by(result) if "ring=" in name]
    assert len(rings) >= 4, result.stdout
    for simulated, planned in rings:
        assert float(planned) == pytest.approx(float(simulated), rel=0.07), result.stdout


def test_a_plan_is_proven_unless_the_limit_is_reached():
    """The job's best plan has several buckets: a single strategy may be proven before a search can be stopped."""
    words = [tiny.PROGRAM, "plan", "--model", "7b", "--context", "65536", "--lengths", "commoncrawl",
             "--cluster", "h100-80g", "--ranks", "16", "--json"]
    whole, result = (tiny.run([*words, "--seconds", seconds]) for seconds in ("0", "1e-9"))
    whole, found = (json.loads(one.stdout.splitlines()[-1]) for one in (whole, result))
    assert whole["proven"] and whole["gap"] == 0 and whole["unexamined"] == 0
    assert found["planned_seconds"] <= whole["planned_seconds"] * (1 + found["gap"]) * (1 + 1e-9)
    assert not found["proven"] and "Not proven best in the planner's model: at most " in result.stdout
    assert "--seconds raises it" in flat(result.stdout)


def test_the_limit_holds_for_simulating_too(tmp_path):
    """On one core no simulation begins before the search has ended; the best plan is simulated all the same."""
    core = min(os.sched_getaffinity(0))

    def simulated(seconds):
        result = tiny.run(["taskset", "-c", core, tiny.PROGRAM, "plan", "--model", "7b", "--context", "8192",
                           "--lengths", "commoncrawl", "--cluster", "h100-80g:1x8", "--explain", "--seconds", seconds,
                           "--out", tmp_path / "planned.toml"])
        assert result.returncode == 0, result.stderr
        return json.loads((tmp_path / "planned.plan.json").read_text())["candidates"]

    assert len(simulated("0")) > 2 >= len(simulated("1e-9")) > 0


@pytest.mark.parametrize("more", [["--top", "3"], ["--explain"]], ids=["top", "explain"])
def test_what_is_printed_of_a_plan_of_three_buckets_fits_100_columns(tmp_path, more):
    cluster = tmp_path / "slow.toml"
    cluster.write_text(SLOW_HOSTS)
    folder = tmp_path / "a folder without data, of which a line has to be printed"
    job = tiny.write_job(tmp_path / "job.toml", folder, [],
                         model={"hidden_size": 192, "layers": 2, "heads": 8, "kv_heads": 4, "ffn_size": 512,
                                "vocab_size": 8192},
                         batch={"sequences": 32, "context": 16384, "lengths": "github"},
                         run={"ranks": 8, "precision": "fp32", "checkpoint_every": 5})
    result = plan(job, *more, cluster=cluster)
    assert result.returncode == 0, result.stderr
    assert len(re.findall(r"^  to \d+: ", result.stdout.split("\n\n")[1], re.M)) >= 3, result.stdout
    for line in result.stdout.splitlines():
        assert len(line) <= 100, line


CUT_OFF = ["--model", "7b", "--cluster", "h100-80g", "--ranks", "64", "--context", "131072",
           "--lengths", "commoncrawl", "--seconds", "0.01"]


def test_a_search_that_is_cut_off_claims_nothing_of_plans_that_it_did_not_examine():
    result = tiny.run([tiny.PROGRAM, "plan", *CUT_OFF, "--json"])
    text, found = " ".join(result.stdout.split()), json.loads(result.stdout.splitlines()[-1])
    if len(found["chosen"]) == 1:
        assert "; no quicker plan of several strategies was found in 0.01 s (the limit); limited by" in text, text
    assert "switching gains nothing" not in text
    candidates, timed, excluded, *reasons, unexamined = map(int, re.search(
        r"(\d+) candidates in [\d.]+ s: (\d+) timed, (\d+) excluded \((\d+) by their placement's bound, "
        r"(\d+) by memory, (\d+) by their own bound, (\d+) no better than another of their placement\), "
        r"(\d+) not examined", text).groups())
    assert candidates == timed + excluded + unexamined and excluded == sum(reasons) and unexamined > 0
    assert [candidates, excluded, unexamined] == [found[key] for key in ("candidates", "pruned", "unexamined")]
    assert re.search(r"at most \d+(\.\d)?% above the optimum", text), text
    single = " ".join(tiny.run([tiny.PROGRAM, "plan", *CUT_OFF, "--buckets", "1"]).stdout.split())
    assert "; plans of several strategies were not searched (--buckets 1); limited by" in single, single


def test_an_order_without_buckets_is_refused(job):
    result = plan(job, "--set", "run.order=[1, 0]")
    assert result.returncode == 2 and result.stderr.strip().endswith(
        "run.order is set, but the strategies are left to the planner, which chooses that, too. "
        "Leave it out, or give the buckets strategies."), result.stderr


CLUSTER = """name = "two hosts"
hosts = 2
devices_per_host = 2
overlap_slowdown = 1
[device]
name = "d"
memory = "4 GiB"
memory_bandwidth = "20 GB/s"
launch = "5 us"
[device.fp32]
matmul = "100 Gflop/s"
[device.codecs.int8]
encode = "2 GB/s"
decode = "4 GB/s"
message = "2 us"
[links.intra_host]
latency = "10 us"
bandwidth = "10 GB/s"
[links.inter_host]
latency = "50 us"
bandwidth = "{bandwidth}"
"""


@pytest.mark.parametrize("bandwidth, wins", [("20 MB/s", True), ("100 GB/s", False)])
def test_codecs_that_the_job_allows_are_taken_where_they_win(job, tmp_path, bandwidth, wins):
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER.format(bandwidth=bandwidth))
    allowed = [word for what in ("gradients", "pipeline", "activations")
               for word in ("--set", f"compression.{what}=int8")]
    plain, coded = figures("plan", job, cluster=cluster), figures("plan", job, *allowed, cluster=cluster)
    roles = [bucket["full"].get("compression", {}) for bucket in coded["chosen"]]
    assert "int8" not in str(plain["chosen"])
    assert ("int8" in str(roles)) == wins
    if wins:
        assert coded["step_seconds"] < 0.9 * plain["step_seconds"]
    else:
        assert coded["step_seconds"] == plain["step_seconds"]
    text = plan(job, *allowed, cluster=cluster).stdout
    assert ("  encoded" in text) == wins, text
    # What costs nothing to leave out is left out: a strategy has no codec of messages that it doesn't send.
    for bucket in coded["chosen"]:
        stages = bucket["full"]["groups"][0]["stages"]
        assert len(stages) > 1 or bucket["full"].get("compression", {}).get("pipeline", "none") == "none"
    if wins:
        # From 2 * 2 us on, that the saved three quarters of the bytes must be worth.
        assert {role["smallest"] for role in roles if role} == {256}
        given = figures("plan", job, *allowed, "--set", "compression.smallest=64", cluster=cluster)["chosen"]
        assert {bucket["full"]["compression"]["smallest"] for bucket in given
                if "compression" in bucket["full"]} == {64}


def test_a_plan_with_codecs_is_a_job_of_its_own(job, tmp_path):
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER.format(bandwidth="20 MB/s"))
    planned = tmp_path / "planned.toml"
    assert plan(job, "--set", "compression.gradients=top-1-of-32", "--out", planned, cluster=cluster).returncode == 0
    assert "top-1-of-32" in planned.read_text()
    simulated = figures("simulate", planned, cluster=cluster)
    assert simulated["step_seconds"] > 0


def test_no_single_strategy_is_quicker_than_the_plan(tmp_path):
    """Slow links, of which the planner's model and the simulator may think differently."""
    cluster = tmp_path / "slow.toml"
    cluster.write_text(SLOW_HOSTS)
    job = tiny.write_job(tmp_path / "slow_job.toml", tmp_path / "no_data", [],
                         model={"hidden_size": 192, "layers": 2, "heads": 8, "kv_heads": 4, "ffn_size": 512,
                                "vocab_size": 8192},
                         batch={"sequences": 32, "context": 16384, "lengths": "github"},
                         run={"ranks": 8, "precision": "fp32"})
    chosen, single = figures("plan", job, cluster=cluster), figures("plan", job, "--buckets", "1", cluster=cluster)
    assert chosen["step_seconds"] <= single["step_seconds"] * (1 + 1e-9)


def test_one_bucket_is_one_strategy(job):
    assert len(figures("plan", job, "--buckets", 1)["chosen"]) == 1


def test_the_simulator_chooses_among_single_strategies_between_which_the_model_sees_no_difference():
    """The model's best one takes 0.1% less there than the simulator's best one, and 3% more in the simulator."""
    words = [tiny.PROGRAM, "plan", "--model", "7b", "--context", "8192", "--lengths", "commoncrawl",
             "--cluster", "h100-80g", "--ranks", "32", "--seconds", "0", "--json"]
    every, single = (json.loads(tiny.run([*words, *more]).stdout.splitlines()[-1]) for more in ([], ["--buckets", "1"]))
    assert single["proven"] and every["proven"]
    assert every["step_seconds"] <= single["step_seconds"]


def test_the_explanation_follows_the_plans(job):
    result = plan(job, "--explain")
    assert result.returncode == 0, result.stderr
    for part in "It is limited by ", "What would change it:", "  devices twice as fast: ":
        assert part in result.stdout
    others = "pipeline bf16, activations bf16, ulysses bf16, keys bf16, gathers bf16"
    assert f" codecs that the job doesn't allow (gradients int8, {others}): " in flat(result.stdout)
    some = flat(plan(job, "--explain", "--set", "compression.gradients=int8").stdout)
    assert f" codecs that the job doesn't allow ({others}): " in some


@pytest.mark.parametrize("top", [1, 3])
def test_where_the_own_buckets_are_quickest_and_unknown_to_the_model_the_next_plan_is_explained(tmp_path, top):
    own = {"ulysses": 4, "paired": True, "micro_batch_tokens": 512}
    job = tiny.write_job(tmp_path / "job.toml", tmp_path / "no_data", [(512, own)],
                         run={"ranks": 4, "precision": "fp32"},
                         batch={"sequences": 1, "context": 512, "lengths": "full"})
    result = plan(job, "--degrees", "pp", "--buckets", "1", "--top", top, "--explain")
    assert result.returncode == 0, result.stderr
    [chosen] = [found for row, found in plans_of(result.stdout.splitlines()) if row.startswith("chosen ")]
    assert chosen == "to 512: ulysses=4"
    text = flat(result.stdout)
    assert ("the planner's model can't time them. This is about the quickest plan that it can time: step more"
            in text), text
    numbers = re.findall(r"^ +(\d+) .*%", result.stdout.split("This is about")[1], re.M)
    assert numbers == [str(2 + i) for i in range(len(numbers))] and numbers


def test_memory_is_reported_by_the_budget(job):
    found = plan(job, "--explain").stdout
    needed = re.search(r"needs ([\d.]+ [KM]iB) of the budget of 216 MiB ", found)[1]
    tight = plan(job, "--explain", "--set", 'run.memory_budget="100 MiB"').stdout
    assert f"needs {needed} of the budget of 100 MiB" in tight, tight


@pytest.mark.parametrize("words, told", [
    (["--cluster", "demo", "--sequences", "8..16", "--set", "batch.tokens=4096"],
     "--sequences 8..16: a key that --set gives replaces it. Leave one of them out."),
    (["--cluster", "nowhere"], "is neither a file nor a known name"),
    (["--cluster", "demo", "--out", "/nowhere/planned.toml"], "there is no folder /nowhere")],
    ids=["sequences", "cluster", "out"])
def test_what_cannot_be_is_reported(job, words, told):
    result = tiny.run([tiny.PROGRAM, "plan", job, *words])
    assert result.returncode == 2 and told in result.stderr, result.stderr


def test_counts_below_one_are_refused(job):
    for option in ["--top", "--buckets", "--steps", "--ranks"]:
        result = plan(job, option, 0)
        assert result.returncode not in (0, 4) and option in result.stderr and result.stdout == "", result.stderr
    assert plan(job, "--seconds", -1).returncode not in (0, 4)


def test_a_job_that_is_not_there_is_reported(tmp_path):
    result = plan(tmp_path / "none.toml")
    assert result.returncode == 2 and "none.toml" in result.stderr, result.stderr


def test_a_job_without_a_context_is_reported(tmp_path):
    job = write_job(tmp_path / "job.toml")
    job.write_text(re.sub(r"context = \d+\n", "", job.read_text()))
    result = plan(job)
    assert result.returncode == 2 and "batch.context" in result.stderr, result.stderr


def test_a_model_that_fits_nowhere_is_refused_with_what_would_do(tmp_path, lengths):
    model = tiny.MODEL | {"hidden_size": 1024, "ffn_size": 4096, "layers": 8}
    job = write_job(tmp_path / "job.toml", lengths, model=model)
    result = plan(job)
    assert result.returncode == 2 and result.stdout == "", result.stderr
    assert "no strategy fits 4 ranks of 216 MiB" in result.stderr
    needed = int(re.search(r"Enough: (\d+) MiB of memory a rank", result.stderr)[1])
    cluster = tmp_path / "larger.toml"
    demo = (tiny.ROOT / "clusters" / "demo.toml").read_text()
    for memory, code in [(needed, 0), (needed - 1, 2)]:
        cluster.write_text(demo.replace('"216 MiB"', f'"{memory} MiB"'))
        assert plan(job, cluster=cluster).returncode == code, memory


def test_what_does_not_fit_is_cut_and_the_least_that_fits_is_told(tmp_path):
    """With less memory a plan cuts gradients and parameters (ZeRO); below the least nothing fits."""
    (tmp_path / "lengths.json").write_text(json.dumps({"bins": [[100, 2000, 9], [20000, 32769, 1]]}))
    job = tmp_path / "job.toml"
    job.write_text(f"""[model]
preset = "7b"
[batch]
sequences = 32
context = 32768
lengths = "{tmp_path}/lengths.json"
[run]
ranks = 8
precision = "bf16"
""")

    def zeros(*arguments):
        return {bucket["full"]["zero"] for bucket in figures("plan", job, *arguments, cluster="a800-80g")["chosen"]}

    assert zeros() <= {0, 1}
    assert zeros("--set", "run.memory_budget=36 GiB", "--out", tmp_path / "planned.toml") & {2, 3}
    assert figures("simulate", tmp_path / "planned.toml", cluster="a800-80g")["fits"]
    refused = plan(job, "--set", "run.memory_budget=8 GiB", cluster="a800-80g")
    assert refused.returncode == 2
    [enough] = re.findall(r"Enough: ([\d.]+ GiB) of memory a rank", refused.stderr)
    assert zeros("--set", f"run.memory_budget={enough}")


def test_plans_whose_steps_choose_their_buckets_are_as_quick_at_least_and_simulate_as_announced(job, tmp_path):
    planned = tmp_path / "planned.toml"
    fixed = figures("plan", job, "--steps", "4")
    chosen = figures("plan", job, "--steps", "4", "--set", "run.choose_buckets=true", "--out", planned)
    assert chosen["step_seconds"] <= fixed["step_seconds"] * (1 + 1e-9)
    assert len(chosen["chosen"]) <= 6 and "choose_buckets = true" in planned.read_text()
    simulated = figures("simulate", planned, "--steps", "4")
    assert simulated["step_seconds"] == pytest.approx(chosen["step_seconds"], rel=1e-9)
    assert len(simulated["buckets_of_steps"]) == 4


def test_buckets_to_choose_from_depend_on_neither_what_is_listed_nor_the_number_of_cores(tmp_path):
    (tmp_path / "lengths.json").write_text(json.dumps({"bins": [[20, 120, 20], [120, 300, 3], [300, 513, 1]]}))
    job = write_job(tmp_path / "job.toml", run={"ranks": 4, "precision": "fp32", "choose_buckets": True},
                    batch={"sequences": 16, "context": 512, "lengths": str(tmp_path / "lengths.json")})

    def written(name, *arguments, cores=None):
        out = tmp_path / f"{name}.toml"
        pinned = [] if cores is None else ["taskset", "-c", cores]
        result = tiny.run([*pinned, tiny.PROGRAM, "plan", job, "--cluster", "demo", "--steps", "4", "--out", out,
                           *arguments])
        assert result.returncode == 0, result.stderr
        return out.read_text(), json.loads((tmp_path / f"{name}.plan.json").read_text()), result.stdout

    alone, compared, _ = written("alone", cores=min(os.sched_getaffinity(0)))
    assert alone.count("[[bucket]]") == 2  # two buckets of the same length
    assert written("all")[:2] == (alone, compared)
    explained, _, text = written("explained", "--explain")
    assert explained == alone
    assert float(re.search(r"twice the memory: .*? \(([-+.\d]+)%\)", text)[1]) <= 0, text


def test_a_plan_with_buckets_beside_the_jobs_own_is_not_the_jobs_own(tmp_path):
    (tmp_path / "lengths.json").write_text(json.dumps({"bins": [[20, 60, 2], [400, 513, 3]]}))
    own = {"dp": 2, "ulysses": 2, "paired": True, "micro_batch_tokens": 512}
    job = tiny.write_job(tmp_path / "job.toml", tmp_path / "no_data", [(512, own)],
                         batch={"sequences": 2, "context": 512, "lengths": str(tmp_path / "lengths.json")},
                         run={"ranks": 4, "precision": "fp32", "choose_buckets": True})
    found = figures("plan", job, "--steps", "6", "--degrees", "pp")
    strategies = [bucket["strategy"] for bucket in found["chosen"]]
    assert strategies[0] == "dp=2,ulysses=2,micro_batch_tokens=512,paired=true" and len(strategies) > 1
    assert not found["own"]


def test_keys_of_rings_pass_in_steps_where_memory_has_no_room_for_all_at_once(tmp_path):
    model = {"hidden_size": 64, "layers": 1, "heads": 1, "kv_heads": 1, "ffn_size": 64, "vocab_size": 128}

    def job(*buckets):
        return tiny.write_job(tmp_path / "job.toml", tmp_path / "no-data", buckets, model=model,
                              batch={"sequences": 4, "context": 4096, "lengths": "full"},
                              run={"ranks": 4, "precision": "fp32"})

    def plan(memory):
        found = tiny.run([tiny.PROGRAM, "plan", job(), "--cluster", "demo", "--buckets", 1,
                          "--set", f'run.memory_budget="{memory} B"'])
        assert found.returncode == 0, found.stderr
        return next(plan for row, plan in plans_of(found.stdout.splitlines()) if row.startswith("chosen "))

    told = tiny.run([tiny.PROGRAM, "simulate", job((4096, "ring=4")), "--cluster", "demo", "--json"])
    enough = json.loads(told.stdout.splitlines()[-1])["peak_bound_bytes"]
    assert "to 4096: ring=4" in plan(enough) and "exchange=ring" not in plan(enough)
    assert "to 4096: ring=4" in plan(enough - 1) and "exchange=ring" in plan(enough - 1)
