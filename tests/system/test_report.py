"""`switchyard report` and `simulate --report`: the page's figures, and the page in a browser without a network."""

import json
import re

import browser
import pytest
import tiny_runs as tiny

BUCKETS = [(48, "1,2,2"), (20, "4,1,1")]


def data_of(path):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(),
                                re.S).group(1))


@pytest.fixture(scope="module")
def job(tmp_path_factory, corpus):
    return tiny.write_job(tmp_path_factory.mktemp("job") / "job.toml", corpus, BUCKETS,
                          run={"ranks": 4, "precision": "fp32", "steps": 3})


@pytest.fixture(scope="module")
def run_folder(job, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "a <b> & c"
    tiny.train(job, "--out", out)
    return out


@pytest.fixture(scope="module")
def measured(run_folder):
    result = tiny.run([tiny.PROGRAM, "report", run_folder, "--cluster", "demo"])
    assert result.returncode == 0, result.stderr
    return run_folder / "report.html"


@pytest.fixture(scope="module")
def simulated(job, tmp_path_factory):
    out = tmp_path_factory.mktemp("simulated")
    result = tiny.run([tiny.PROGRAM, "simulate", job, "--cluster", "demo", "--report", out, "--against",
                       "all", "--json"])
    assert result.returncode == 0, result.stderr
    return out / "report.html", json.loads(result.stdout.splitlines()[-1])


def test_a_simulated_page_has_the_simulations_figures(simulated):
    path, figures = simulated
    run = data_of(path)["runs"][0]
    assert run["timelines"][0]["predicted_seconds"] == pytest.approx(figures["step_seconds"], rel=1e-9)
    assert run["memory"]["predicted_peak"] == figures["peak_bytes"]
    assert [c["name"] for c in run["candidates"] if c["chosen"]] == ["this job"] and len(run["candidates"]) == 7
    trace = json.loads((path.parent / "trace.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"]} == {0, 1, 2, 3}


def test_a_measured_page_has_the_logs_figures_and_tasks_that_match_the_prediction(measured, run_folder):
    log, run = tiny.read_log(run_folder), data_of(measured)["runs"][0]
    for key in ("loss", "tokens_per_second", "seconds", "intra_bytes"):
        assert run["steps"][key] == [line[key] for line in log]
    assert run["memory"]["measured_peak"] == [max(peaks)
                                              for peaks in zip(*(line["peak_bytes_per_rank"] for line in log))]
    timeline = run["timelines"][0]
    assert timeline["step"] == 2 and 0 < timeline["measured_seconds"] <= log[1]["seconds"]
    names = {measured: {timeline["names"][name] for track, name in zip(timeline["spans"]["track"],
                                                                       timeline["spans"]["name"])
                        if timeline["tracks"][track]["measured"] == measured} for measured in (False, True)}
    runs = {measured: {name for name in names[measured] if name.startswith(("run", "send", "update"))}
            for measured in names}
    assert runs[True] == runs[False] and len(runs[True]) > 10
    sent = sum(use["intra"] for use in run["links"])  # without the few bytes of the batch plan and the norm
    assert sent <= log[1]["intra_bytes"] <= sent + 20_000


def test_the_measured_timeline_is_a_trace_with_a_process_for_each_rank(run_folder):
    trace = json.loads((run_folder / "timeline.json").read_text())
    work = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert trace["otherData"] == {"step": 2, "hosts": [0, 0, 0, 0], "overlap_collectives": False}
    assert ({event["pid"] for event in work} == {0, 1, 2, 3}
            and {event["cat"] for event in work} == {"compute", "communication"})
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in work)


def test_no_step_is_traced_where_none_is_asked_for(job, tmp_path):
    tiny.train(job, "--out", tmp_path / "run", "--steps", 2, "--set", "run.trace_step=0")
    assert not (tmp_path / "run" / "timeline.json").exists()
    assert tiny.run([tiny.PROGRAM, "report", tmp_path / "run", "--out", tmp_path / "page.html"]).returncode == 0
    assert data_of(tmp_path / "page.html")["runs"][0]["timelines"] == []


@pytest.mark.parametrize("break_it, told", [
    (lambda run: (run / "log.jsonl").unlink(), "has no log.jsonl, so it is not a run folder"),
    (lambda run: (run / "log.jsonl").write_text("x\n"), "log.jsonl line 1 is no step of a run"),
    (lambda run: (run / "timeline.json").write_text("[]"), "timeline.json is no timeline of a run")],
                         ids=["log gone", "log broken", "timeline broken"])
def test_what_cannot_be_read_is_reported(run_folder, tmp_path, break_it, told):
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("job.toml", "log.jsonl", "timeline.json"):
        (copy / name).write_bytes((run_folder / name).read_bytes())
    break_it(copy)
    result = tiny.run([tiny.PROGRAM, "report", copy])
    assert result.returncode == 2 and told in result.stderr and not (copy / "report.html").exists(), result.stderr


def changed(file, /, **values):
    """A change of a file of the run: of the trace's otherData or first event, or of the log's last line."""
    def change(run):
        path = run / file
        if file == "log.jsonl":
            lines = path.read_text().splitlines()
            path.write_text("\n".join([*lines[:-1], json.dumps(json.loads(lines[-1]) | values)]) + "\n")
        elif file == "plan.json":
            path.write_text(json.dumps({"candidates": [{"name": "a", "seconds": 1, "peak": 1, "fits": True,
                                                        "chosen": True, "remark": ""} | values]}))
        else:
            trace = json.loads(path.read_text())
            event = next(event for event in trace["traceEvents"] if event["ph"] == "X")
            (trace["otherData"] if {"step", "hosts"} & values.keys() else event).update(values)
            path.write_text(json.dumps(trace))
    return change


NAN = float("nan")  # Python writes it as NaN, which is not JSON
ABSURD = [changed("timeline.json", step=-2), changed("timeline.json", step=0),
          changed("timeline.json", step=999999999999), changed("timeline.json", step=1e308),
          changed("timeline.json", step="2"), changed("timeline.json", step=NAN),
          changed("timeline.json", hosts=[0, 0, 0, 10**9]), changed("timeline.json", hosts=3),
          changed("timeline.json", pid=-1), changed("timeline.json", pid=10**12), changed("timeline.json", ts=1e308),
          changed("timeline.json", dur=-5),
          changed("timeline.json", dur=NAN), changed("timeline.json", name=5), changed("log.jsonl", step=-2),
          changed("log.jsonl", step=999999999999),
          changed("log.jsonl", step=NAN), changed("log.jsonl", loss="low"), changed("log.jsonl", seconds=1e308),
          changed("log.jsonl", intra_bytes=1e308),
          changed("log.jsonl", peak_bytes_per_rank=[1e308]), changed("plan.json", seconds=1e308),
          changed("plan.json", peak=-1), changed("plan.json", name=None),
          changed("plan.json", seconds=NAN)]


@pytest.mark.parametrize("absurd", ABSURD)
def test_numbers_that_no_run_writes_are_reported(run_folder, tmp_path, absurd):
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("job.toml", "log.jsonl", "timeline.json"):
        (copy / name).write_bytes((run_folder / name).read_bytes())
    absurd(copy)
    result = tiny.run([tiny.PROGRAM, "report", copy], timeout=tiny.HANG)
    assert result.returncode == 2 and str(copy) in result.stderr and "internal error" not in result.stderr
    assert not (copy / "report.html").exists(), result.stderr


@browser.needed
def test_pages_draw_without_errors_and_without_a_network(simulated, measured, run_folder, tmp_path):
    both = tmp_path / "both.html"
    assert tiny.run([tiny.PROGRAM, "report", run_folder, run_folder, "--out", both]).returncode == 0
    for path, sections in [(simulated[0], {"timeline", "shares", "memory", "buckets", "links",
                                           "switches", "candidates"}),
                           (measured, {"steps", "timeline", "shares", "memory", "buckets", "links", "switches"}),
                           (both, {"steps", "timeline", "memory", "buckets", "links", "switches"})]:
        with browser.Browser() as page:
            assert page.open(path) == "ready", page.errors()
            assert page.errors() == [] and len(page.requests()) == 1
            assert set(page.evaluate("[...document.querySelectorAll('section[id]')].map((s) => s.id)")) == sections
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            page.screenshot(tmp_path / "page.png")
            assert (tmp_path / "page.png").stat().st_size > 50_000


@browser.needed
def test_names_of_a_run_are_shown_as_they_are(measured, run_folder):
    with browser.Browser() as page:
        page.open(measured)
        assert page.evaluate("document.querySelector('h1').textContent") == run_folder.name
        assert page.evaluate("document.title") == run_folder.name


RANGE = """(() => {
  const plots = Object.values(Bokeh.index.get_by_id ? [...Bokeh.index] : Bokeh.index).map((v) => v.model);
  const p = plots.find((m) => m.x_range && m.x_axis_label_is_time !== 0 && m.y_range.start > m.y_range.end &&
                              m.left.some((a) => a.major_label_overrides.size > 0));
  return [p.x_range.start, p.x_range.end];
})()"""
TOOLTIP = """(() => {
  const found = [];
  const walk = (n) => {
    if (n.shadowRoot) walk(n.shadowRoot);
    for (const c of n.children || []) walk(c);
    if (n.classList && n.classList.contains("bk-Tooltip")) found.push((n.shadowRoot || n).textContent);
  };
  walk(document.body);
  return found.join("|");
})()"""


@browser.needed
def test_the_timeline_zooms_with_the_wheel_and_names_what_the_mouse_is_on(simulated):
    named = re.compile(r"micro-batch \d+ of \d+, layers \d+(-\d+)?, replica \d+ of strategy \d,\d,\d"
                       r"|unit \d+(, round \d+)?, strategy \d,\d,\d|update u\d+|norm")
    with browser.Browser(height=900) as page:
        page.open(simulated[0])
        page.evaluate("document.querySelector('.timeline').scrollIntoView()")
        box = page.evaluate("(() => { const b = document.querySelector('.timeline > "
                            "div:last-child').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        x, y = box[0] + 0.2 * box[2], box[1] + 18
        before = page.evaluate(RANGE)
        seen = ""
        for step in range(40):  # the first row has a span somewhere
            page.mouse("mouseMoved", x + 8 * step, y)
            page.evaluate("new Promise((done) => setTimeout(done, 30))")
            seen = page.evaluate(TOOLTIP)
            if named.search(seen):
                break
        assert named.search(seen) and "rank" in seen, seen
        page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400, modifiers=2)
        page.evaluate("new Promise((done) => setTimeout(done, 300))")
        after = page.evaluate(RANGE)
        assert after[1] - after[0] < 0.9 * (before[1] - before[0])
        assert page.errors() == []
