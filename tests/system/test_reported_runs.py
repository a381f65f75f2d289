"""`switchyard report` of runs that went on, went back, or lack something: the page says what it can."""

import json
import re
import shutil

import browser
import tiny_runs as tiny
from report_pages import BUCKETS, data_of, job, page_of, run_folder  # noqa: F401: fixtures


def test_a_page_has_the_buckets_that_the_step_chose(tmp_path, corpus):
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(48, "1,2,1"), (48, "2,1,1")],
                         run={"ranks": 2, "precision": "fp32", "steps": 2, "choose_buckets": True,
                              "emulate": "demo:1x2"})
    out = tmp_path / "run"
    tiny.train(job, "--out", out)
    steps = [json.loads(line)["chosen_buckets"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert all(chosen in ([0], [1]) for chosen in steps)
    documented = set(re.findall(r"`(\w+)`", (tiny.ROOT / "docs/file-formats.md").read_text()))
    assert set(json.loads((out / "log.jsonl").read_text().splitlines()[0])) <= documented
    result = tiny.run([tiny.PROGRAM, "report", out])
    assert result.returncode == 0, result.stderr
    rows = data_of(out / "report.html")["runs"][0]["buckets"]
    assert [row["micro_batches"] > 0 for row in rows] == [steps[1] == [0], steps[1] == [1]]
    assert [row["min_length"] for row in rows] == [1 if steps[1] == [bucket] else None for bucket in (0, 1)]

    log = (out / "log.jsonl").read_text()
    (out / "log.jsonl").write_text(re.sub(r'"chosen_buckets":\[[01]\]', '"chosen_buckets":[2]', log))
    (out / "timeline.json").unlink()
    run = page_of(out)
    assert run["buckets"] == [] and run["notes"][0].startswith("Step 1 chose bucket 2, but job.toml has 2 buckets: ")


def test_a_run_that_goes_on_with_other_strategies_has_a_page_without_its_old_step_s_plan(job, run_folder, tmp_path,
                                                                                         corpus):
    out = tmp_path / "run"
    shutil.copytree(run_folder, out)
    (out / "plan.json").write_text(json.dumps({"job": "0123456789abcdef", "candidates": []}))
    other = tiny.write_job(tmp_path / "job.toml", corpus, [(48, "1,1,4")],
                           run={"ranks": 4, "precision": "fp32", "steps": 5})
    tiny.train(other, "--out", out, "--resume", out)
    run = page_of(out)
    assert run["notes"] == [
        "Step 2 was traced before the run was resumed with another job, so buckets, links, switches and the prediction "
        "are missing.", "plan.json has plans for other batches or buckets than the run has now: they are left out."]
    assert run["buckets"] == [] and run["timelines"][0]["step"] == 2 and run["timelines"][0]["phases"] == []
    if browser.program():
        with browser.Browser() as page:
            assert page.open(out / "report.html") == "ready" and page.errors() == []
    tiny.train(other, "--out", out, "--resume", out, "--steps", 6, "--set", "run.trace_step=6")
    run = page_of(out)
    assert run["timelines"][0]["step"] == 6 and [row["strategy"] for row in run["buckets"]] == ["1,1,4"]


def test_documents_of_a_step_before_the_batch_became_another_are_not_made_up(job, tmp_path):
    out, more = tmp_path / "run", ["--set", "batch.sequences=12"]
    tiny.train(job, "--out", out, "--steps", 2, "--set", "run.trace_step=0")
    log = tiny.train(job, "--out", out, "--resume", out, "--steps", 4, "--set", "run.trace_step=4", *more)
    run = page_of(out)
    assert run["documents"] is None and re.fullmatch(
        rf"Step 4 had {log[3]['tokens']} tokens, but \d+ by job.toml: the run was resumed with another job, so .*",
        run["notes"][0])


def test_documents_are_those_that_were_trained_whatever_lengths_the_job_is_planned_for(job, tmp_path):
    log = tiny.train(job, "--out", tmp_path / "run", "--set", "batch.lengths=full")
    run = page_of(tmp_path / "run")
    assert sum(row["tokens"] for row in run["buckets"]) == sum(run["documents"]["lengths"]) == log[1]["tokens"]
    assert run["notes"] == []


def test_a_run_has_its_page_when_the_model_that_it_started_from_is_gone(job, run_folder, tmp_path, corpus):
    start, out = tmp_path / "start", tmp_path / "run"
    shutil.copytree(max((run_folder / "checkpoints").glob("step-*")) / "model", start)
    other = tiny.write_job(tmp_path / "job.toml", corpus, BUCKETS, model={"path": str(start)},
                           run={"ranks": 4, "precision": "fp32", "steps": 3, "checkpoint_every": 1})
    tiny.train(other, "--out", out)
    before = page_of(out)
    start.rename(tmp_path / "gone")
    assert page_of(out) == before and before["notes"] == []
    (tmp_path / "gone").rename(start)
    tiny.train(other, "--out", out, "--resume", out / "checkpoints/step-00000002")
    shutil.rmtree(start)
    assert len(page_of(out / "abandoned-1")["buckets"]) == len(page_of(out)["buckets"]) == len(BUCKETS)


def test_a_run_that_went_back_before_its_traced_step_has_a_page(job, tmp_path):
    out, keep = tmp_path / "run", ["--set", "run.checkpoint_every=1", "--set", "run.trace_step=3"]
    tiny.train(job, "--out", out, *keep)
    tiny.train(job, "--out", out, "--resume", out / "checkpoints/step-00000001", "--steps", 2, *keep)
    assert page_of(out / "abandoned-1")["timelines"][0]["step"] == 3
    run = page_of(out)
    assert run["notes"] == ["timeline.json shows step 3, which the run left by going back to an earlier one."]
    assert run["timelines"] == [] and run["documents"]["step"] == 1


def test_hosts_that_no_timeline_tells_are_not_made_up(job, tmp_path):
    tiny.train(job, "--out", tmp_path / "run", "--emulate", "2x2:1GB/s,1GB/s,1GiB", "--set", "run.trace_step=0")
    assert page_of(tmp_path / "run")["notes"] == [
        "The run was on several hosts, but only a timeline (run.trace_step) says which ranks were on which: links and "
        "switches are shown as of one host."]


def test_times_of_different_machines_are_told_apart(job, tmp_path):
    out, cluster = tmp_path / "run", "2x2:1GB/s,1GB/s,1GiB"
    tiny.train(job, "--out", out, "--steps", 2)
    tiny.train(job, "--out", out, "--resume", out, "--steps", 3, "--emulate", cluster)
    run = page_of(out)
    assert run["notes"] == [f"Steps have times of different machines: the one it ran on, {cluster}."]
    assert run["headline"][0].startswith("Step 2, measured at ") and "emulated" not in str(run["headline"])
