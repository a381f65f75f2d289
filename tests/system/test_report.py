"""`switchyard report` and `simulate --report`: the page's figures, and the page in a browser without a network."""

import fcntl
import json
import re
import shutil
import subprocess
import time

import browser
import pytest
import tiny_runs as tiny
from report_pages import BUCKETS, data_of, job, run_folder  # noqa: F401: fixtures

LONG_NAME = "a-name-that-is-too-long-to-stand-beside-a-value"


@pytest.fixture(scope="module")
def measured(run_folder):
    result = tiny.run([tiny.PROGRAM, "report", run_folder, "--cluster", "demo"])
    assert result.returncode == 0, result.stderr
    return run_folder / "report.html"


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """The folder of a run with two sources, which are validated after every other step."""
    folder = tmp_path_factory.mktemp("validated")
    for seed, name in enumerate(("web", "code"), 7):
        tiny.write_corpus(folder / name, tiny.random_documents(seed, 20))
    job = tiny.write_job(folder / "job.toml", "unused", BUCKETS, run={"ranks": 4, "precision": "fp32", "steps": 4},
                         validation={"every": 2, "sequences": 12})
    job.write_text(job.read_text().replace('[data]\npath = "unused"\n', "") + "".join(
        f'[[{part}.source]]\npath = "{folder / name}"\nname = "{name}"\n' for part in ("data", "validation")
        for name in ("web", "code")))
    tiny.train(job, "--out", folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def several(run_folder, tmp_path_factory):
    """A page of three runs: of the last, the second loss is higher."""
    folder = tmp_path_factory.mktemp("several")
    other = folder / LONG_NAME / run_folder.name
    shutil.copytree(run_folder, other)
    log = tiny.read_log(other)
    log[1]["loss"] += 0.25
    (other / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    result = tiny.run([tiny.PROGRAM, "report", run_folder, run_folder, other, "--out", folder / "all.html"])
    assert result.returncode == 0, result.stderr
    return folder / "all.html"


@pytest.fixture(scope="module")
def simulated(job, tmp_path_factory):
    out = tmp_path_factory.mktemp("simulated")
    result = tiny.run([tiny.PROGRAM, "simulate", job, "--cluster", "demo", "--report", out, "--against",
                       "all", "--json"])
    assert result.returncode == 0, result.stderr
    return out / "report.html", json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def ringed(tmp_path_factory, corpus):
    """A job with ring attention, and the page of its simulation."""
    folder = tmp_path_factory.mktemp("ring")
    ring = {"dp": 2, "ring": 2, "micro_batch_tokens": 64}
    job = tiny.write_job(folder / "job.toml", corpus, [(48, ring), (20, "4,1,1")],
                         run={"ranks": 4, "precision": "fp32"})
    result = tiny.run([tiny.PROGRAM, "simulate", job, "--cluster", "demo", "--report", folder])
    assert result.returncode == 0, result.stderr
    return job, folder / "report.html"


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
    for key in ("loss", "tokens_per_second", "seconds", "intra_bytes", "slowest_rank", "median_rank_seconds"):
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


def lines_of(documents):
    """Names and tokens of a page's ring ranks, or of its micro-batches where there is no ring."""
    return [(f"{r}.{m}" + (f".{i}" if phase["ring"] else ""), place["tokens"]) for phase in documents["phases"]
            for r, replica in enumerate(phase["replicas"]) for m, ranks in enumerate(replica["micro_batches"])
            for i, place in enumerate(ranks)]


def test_documents_lie_where_show_batch_says(simulated, job, ringed):
    for page, of, phases in ((simulated[0], job, 2), (ringed[1], ringed[0], 2)):
        documents = data_of(page)["runs"][0]["documents"]
        shown = tiny.run([tiny.PROGRAM, "show", "batch", of, "--cluster", "demo"]).stdout
        assert len(documents["phases"]) == phases
        lines = re.findall(r"^ +(\d+\.\d+(?:\.\d+)?) +(\d+)[ :]", shown, re.M)
        assert lines_of(documents) == [(name, int(tokens)) for name, tokens in lines]
        told = re.findall(r"has ([\d.]+) of an even share; (?:whole documents allow|no placement has less than) "
                          r"([\d.]+)", shown)
        assert [(f"{phase['slowest']:.3f}", f"{phase['bound']:.3f}") for phase in documents["phases"]] == told
        assert f"{len(documents['lengths'])} documents" in shown
    places = [place for phase in documents["phases"] for replica in phase["replicas"]
              for ranks in replica["micro_batches"] for place in ranks]
    assert sum(place["keys_inside"] + place["keys_across"] for place in places) > 0
    assert sum(place["key_bytes"] for place in places) == sum(
        use["intra"] + use["inter"] for use in data_of(ringed[1])["runs"][0]["links"]
        if use["what"] == "keys and values between ring ranks") > 0


def test_the_measured_timeline_is_a_trace_with_a_process_for_each_rank(run_folder):
    trace = json.loads((run_folder / "timeline.json").read_text())
    work = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert re.fullmatch("[0-9a-f]{16}", trace["otherData"].pop("job"))
    assert trace["otherData"] == {"step": 2, "hosts": [0, 0, 0, 0], "overlap_collectives": False}
    assert ({event["pid"] for event in work} == {0, 1, 2, 3}
            and {event["cat"] for event in work} == {"compute", "communication"})
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in work)


def test_a_page_begins_with_what_limits_the_step_and_what_the_job_gains(simulated, measured, run_folder):
    run = data_of(simulated[0])["runs"][0]
    assert re.match(r"Step 1, predicted to take .*, is limited by .*: \d+ % of the ranks' time", run["headline"][0])
    by_name = {c["name"]: c for c in run["candidates"]}
    best = min((c for c in run["candidates"] if c["single"] and c["fits"] and c["seconds"]), key=lambda c: c["seconds"])
    change = by_name["this job"]["seconds"] / best["seconds"] - 1
    gain = (f"{1 + change:.1f} times as long as" if change >= 1 else
            f"{abs(change):.0%}".replace("%", " %") + (" less" if change < 0 else " more"))
    assert gain in run["headline"][1] and best["name"] in run["headline"][1]
    run = data_of(measured)["runs"][0]
    assert run["headline"][0].startswith("Step 2, measured at ") and "The prediction was" in run["headline"][1]
    for parts in run["parts"]:
        assert sum(parts[key] for key in ("compute", "collectives", "switching", "sends", "pipeline",
                                          "imbalance")) == pytest.approx(1, abs=1e-6)
    assert len(run["longest"]) == 10 and all(task["measured"] for task in run["longest"])
    seconds = [task["end"] - task["begin"] for task in run["longest"]]
    assert seconds == sorted(seconds, reverse=True)


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
          changed("timeline.json", step=1e308),
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


# Charts and fields that a screen reader can't name.
UNNAMED = """[...document.querySelectorAll('.bk-Figure')].filter((f) => !f.closest('[role=img][aria-label]'))
  .concat([...document.querySelectorAll('select, input')].filter((f) => !f.getAttribute('aria-label')))
  .map((f) => f.outerHTML.slice(0, 80))"""
CLIPPED = """[...document.querySelectorAll('td, .tile b, .facts span, .headline b')]
  .filter((cell) => cell.scrollWidth > cell.clientWidth + 1 && getComputedStyle(cell).display !== 'inline' ||
                    cell.getBoundingClientRect().right > window.innerWidth).map((cell) => cell.textContent)"""


# Labels of axes that are longer than their figure.
CUT_LABELS = """[...Bokeh.index].filter((v) => v.model.type === 'Figure').flatMap((v) => {
  const pen = document.createElement('canvas').getContext('2d');
  return [...v.model.left, ...v.model.below].filter((axis) => axis.visible && axis.axis_label).filter((axis) => {
    pen.font = `${axis.axis_label_text_font_size} ${axis.axis_label_text_font}`;
    const room = v.model.left.includes(axis) ? v.model.outer_height : v.model.outer_width;
    return pen.measureText(axis.axis_label).width > room;
  }).map((axis) => axis.axis_label);
})"""


def glyphs_of(page, selector):
    """The glyphs of each figure below the elements, with type, looks and data."""
    return page.evaluate("""((selector) => {
      const plain = (value) => (value && typeof value === 'object' && 'value' in value ? value.value : value);
      const columns = (data) => Object.fromEntries(Object.entries(data).map(([name, column]) => [name, [...column]]));
      return [...Bokeh.index].filter((v) => v.model.type === 'Figure' && v.el.closest(selector)).map(
          (v) => v.model.renderers.map((r) => ({
            type: r.glyph.type, line: plain(r.glyph.line_color), fill: plain(r.glyph.fill_color),
            dash: plain(r.glyph.line_dash), data: columns(r.data_source.data)
          })));
    })(%s)""" % json.dumps(selector))


def curves_of(page, figure):
    """The curves of a figure by name: their points."""
    return {glyph["data"]["name"][0]: dict(zip(glyph["data"]["x"], glyph["data"]["y"]))
            for glyph in figure if glyph["type"] == "Line"}


@browser.needed
def test_a_narrow_page_has_every_value_in_sight(simulated, measured, ringed, several):
    for path in (simulated[0], measured, ringed[1], several):
        with browser.Browser(width=390, height=800) as page:
            assert page.open(path) == "ready", page.errors()
            page.evaluate("document.querySelectorAll('summary').forEach((summary) => summary.click())")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert page.evaluate(CLIPPED) == [] and page.errors() == []
            assert page.evaluate(CUT_LABELS) == []


@browser.needed
def test_a_page_follows_the_colour_scheme(simulated):
    colors = "[getComputedStyle(document.body).backgroundColor, COLORS.panel, " \
             "[...Bokeh.index][0].model.background_fill_color]"
    with browser.Browser() as page:
        page.open(simulated[0])
        light = page.evaluate(colors)
        page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        assert page.open(simulated[0]) == "ready" and page.errors() == []
        dark = page.evaluate(colors)
        assert all(a != b for a, b in zip(light, dark)) and light[1] == light[2] and dark[1] == dark[2]


@browser.needed
def test_plans_have_labels_that_differ_and_those_that_do_not_fit_are_last(simulated, tmp_path):
    alike = ["to 32768: 1,16,2; to 16384: 2,8,2; to 8192: 4,4,2; to 4096: " + end
             for end in ("4,2,4", "8,4,1", "8,2,2")]
    names = [*alike, alike[0].replace("8192: 4", "8192: 2"), "4,4,2"]
    wide = tmp_path / "page.html"
    text = simulated[0].read_text()
    data = data_of(simulated[0])
    fit = data["runs"][0]["candidates"]
    quickest = min((c for c in fit if c["seconds"]), key=lambda c: c["seconds"])
    quickest["fits"] = False
    start, end = text.index('id="data">') + 10, text.index("</script>", text.index('id="data">'))
    wide.write_text(text[:start] + json.dumps(data).replace("<", "\\u003c") + text[end:])
    with browser.Browser() as page:
        page.open(wide)
        labels = page.evaluate(f"labelsOf({json.dumps(names)})")
        assert len({label.split("  ", 1)[1] for label in labels}) == len(names)
        factors = page.evaluate("[...Bokeh.index].map((v) => v.model.y_range?.factors).find((f) => f)")
        assert factors[0].endswith("  " + quickest["name"])  # the lowest bar
        label = page.evaluate("document.querySelector('#candidates [role=img]').getAttribute('aria-label')")
        assert re.search(r"\d m?s$", label), label
    with browser.Browser(width=390) as page:
        page.open(wide)
        assert page.evaluate("[...document.querySelectorAll('#candidates li')].length") == sum(c["seconds"] is not None
                                                                                               for c in fit)


@browser.needed
def test_the_documents_of_a_replica_are_chosen_and_listed(ringed):
    with browser.Browser() as page:
        assert page.open(ringed[1]) == "ready" and page.errors() == []
        rows = "document.querySelectorAll('#documents .lists tbody tr').length"
        assert page.evaluate(rows) == 0
        page.evaluate("document.querySelector('#documents summary').click()")
        documents = data_of(ringed[1])["runs"][0]["documents"]
        first = documents["phases"][0]
        slowest = max(range(2), key=lambda r: first["replicas"][r]["share"])
        of = {r: sum(len(ranks) for ranks in first["replicas"][r]["micro_batches"]) for r in range(2)}
        wait_until(lambda: page.evaluate(rows) == of[slowest])
        label = "document.querySelector('#documents [role=img]').getAttribute('aria-label')"
        assert page.evaluate(label).startswith(f"documents of replica {slowest}, by micro-batch and ring rank: ")
        page.evaluate("""(() => { const choice = document.querySelector('#documents select');
          choice.value = %d; choice.dispatchEvent(new Event('change')); })()""" % (1 - slowest))
        assert page.evaluate(label).startswith(f"documents of replica {1 - slowest}, ")
        assert page.evaluate(UNNAMED) == [] and page.errors() == []


@browser.needed
def test_equal_losses_are_told_apart_by_their_differences(several, run_folder):
    with browser.Browser() as page:
        page.open(several)
        told = page.evaluate("[...document.querySelectorAll('#loss-difference p')].map((p) => p.textContent)")
        name, above = run_folder.name, run_folder.parent.name
        assert told == [f"{above}/{name} (2): the same loss as {above}/{name} in all 3 steps.",
                        f"{LONG_NAME}/{name}: the largest difference is 0.250, at step 2."]
        names = page.evaluate("[...document.querySelectorAll('#steps > .keys .key')].map((key) => key.textContent)")
        assert names == [f"{above}/{name}", f"{above}/{name} (2)", f"{LONG_NAME}/{name}"]
        [figure] = glyphs_of(page, "#loss-difference")
        lines = [glyph["data"]["y"] for glyph in figure if glyph["type"] == "Line"]
        assert lines == [[0, 0, 0], [0, pytest.approx(0.25), 0]]


@browser.needed
def test_losses_are_shown_by_source_and_validations_by_length_and_source(validated, tmp_path):
    page_file = tmp_path / "page.html"
    assert tiny.run([tiny.PROGRAM, "report", validated, "--out", page_file]).returncode == 0
    log = {line["step"]: line for line in tiny.read_log(validated)}
    validations = {line["step"]: line for line in
                   map(json.loads, (validated / "validation.jsonl").read_text().splitlines())}
    assert set(validations) == {2, 4}

    def losses(lines, **keys):
        return {name: pytest.approx({step: line[key] for step, line in lines.items() if key in line})
                for name, key in keys.items()}

    def figures(page):
        labels = page.evaluate("[...document.querySelectorAll('#steps [role=img]')].map((f) => f.ariaLabel)")
        return dict(zip(labels, (curves_of(page, figure) for figure in glyphs_of(page, "#steps")), strict=True))

    sources = {"all": "loss", "web": "loss/web", "code": "loss/code"}
    lengths = {"all": "loss", "up to 48 tokens": "loss/to 48", "up to 20 tokens": "loss/to 20"}
    with browser.Browser() as page:
        assert page.open(page_file) == "ready" and page.errors() == []
        shown = figures(page)
        assert shown["loss by source by step"] == losses(log, **sources)
        assert shown["validation loss by length by step"] == losses(validations, **lengths)
        assert shown["validation loss by source by step"] == losses(validations, **sources)
        keys = page.evaluate("[...document.querySelectorAll('#steps .two .keys')].map((keys) => "
                             "[...keys.children].map((key) => key.textContent))")
        assert [set(names) for names in keys] == [set(sources), set(lengths), set(sources)]
        assert page.evaluate(CUT_LABELS) == []
        others = page.evaluate("[...document.querySelectorAll('#steps option')].map((option) => option.value)")
        assert "tokens/web" in others and not any(name.startswith(("loss", "validation")) for name in others)

    other = tmp_path / "other"
    shutil.copytree(validated, other)
    assert tiny.run([tiny.PROGRAM, "report", validated, other, "--out", page_file]).returncode == 0
    with browser.Browser() as page:
        assert page.open(page_file) == "ready" and page.errors() == []
        curves = figures(page)["validation loss by source by step"]
        assert set(curves) == {f"{part}, {run}" for part in sources for run in ("run", "other")}
        figure = next(figure for figure in glyphs_of(page, "#steps")
                      if any(glyph["data"]["name"][0] == "web, other" for glyph in figure))
        assert len({(glyph["line"], str(glyph["dash"])) for glyph in figure if glyph["type"] == "Line"}) == 6


@browser.needed
@pytest.mark.parametrize("median", [True, False])
def test_the_slowest_rank_of_each_step_is_shown_and_the_worst_steps_are_listed(run_folder, tmp_path, median):
    copy, count = tmp_path / "run", 14
    copy.mkdir()
    job = (run_folder / "job.toml").read_text()
    (copy / "job.toml").write_text(re.sub(r"(?m)^steps = 3$", f"steps = {count}", job))
    [_, line, _] = tiny.read_log(run_folder)
    shares = {step: 7 * step % 15 / 20 for step in range(1, count + 1)}  # no two are equal
    log = [line | {"step": step, "seconds": 2, "slowest_rank": step % 4, "slowest_rank_seconds": 1.5,
                   "median_rank_seconds": 1.5 - 2 * share} for step, share in shares.items()]
    if not median:  # reports of earlier versions have none
        log = [{key: value for key, value in line.items() if key != "median_rank_seconds"} for line in log]
    (copy / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    assert tiny.run([tiny.PROGRAM, "report", copy]).returncode == 0
    with browser.Browser() as page:
        assert page.open(copy / "report.html") == "ready" and page.errors() == []
        ranks, *above = glyphs_of(page, "#slowest")
        assert [(glyph["type"], glyph["data"]["x"], glyph["data"]["y"]) for glyph in ranks] == [
            ("Scatter", list(shares), [step % 4 for step in shares])]
        rows = page.evaluate("[...document.querySelectorAll('#slowest tbody tr')].map((row) => "
                             "[...row.children].map((cell) => cell.textContent))")
        assert page.evaluate(CUT_LABELS) == []

    def text_of(seconds):
        return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"

    if median:
        [curve] = above
        assert curve[0]["data"]["y"] == pytest.approx(list(shares.values()))
        worst = sorted(sorted(shares, key=shares.get)[-10:])
        assert rows == [[str(step), str(step % 4), "1.50 s", text_of(1.5 - 2 * shares[step]),
                         text_of(2 * shares[step]), f"{100 * shares[step]:.1f} %"] for step in worst]
    else:
        assert above == [] and rows == [[str(step), str(step % 4), "1.50 s", "\u2013", "\u2013", "\u2013"]
                                        for step in range(1, 11)]


@browser.needed
def test_of_many_steps_the_lowest_and_the_highest_are_drawn(measured):
    with browser.Browser() as page:
        page.open(measured)
        few, many = (page.evaluate(f"thinned(Array.from({{length: {count}}}, (_, i) => [i, i === 777 ? 9 : "
                                   "i === 778 ? -9 : i < 20 ? NaN : i % 7]))") for count in (8000, 100000))
        dots = page.evaluate("thinned(Array.from({length: 20000}, (_, i) => [i, i % 7]), true)")
    assert len(few) == 8000 and [x for x, _ in many] == sorted({x for x, _ in many}) and 4000 < len(many) <= 8000
    assert dots == [[x, x % 7] for x in range(0, 20000, 3)]
    assert [777, 9] in many and [778, -9] in many and [y for _, y in many if y is None] == []


@browser.needed
def test_the_timeline_is_steered_with_keys_and_searched(simulated):
    with browser.Browser() as page:
        page.open(simulated[0])
        press = "((key) => document.querySelector('.timeline').dispatchEvent(new KeyboardEvent('keydown', {key})))"
        start, end = page.evaluate(RANGE)
        page.evaluate(press + "('w')")
        near = page.evaluate(RANGE)
        assert near[1] - near[0] == pytest.approx(0.8 * (end - start))
        page.evaluate(press + "('d')")
        assert page.evaluate(RANGE)[0] == pytest.approx(near[0] + 0.08 * (end - start))
        page.evaluate(press + "('a')")
        assert page.evaluate(RANGE) == pytest.approx(near)
        page.evaluate(press + "('s')")
        assert page.evaluate(RANGE) == pytest.approx([start, end])
        page.evaluate(press + "('w')")
        page.evaluate(press + "('0')")
        assert page.evaluate(RANGE) == pytest.approx([start, end])
        search = """(text) => { const field = document.querySelector('.search input');
          field.value = text; field.dispatchEvent(new Event('input'));
          const told = document.querySelector('.search span').textContent;
          field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'})); return told; }"""
        assert page.evaluate(f"({search})('nothing like this')") == "nothing found"
        assert page.evaluate(RANGE) == pytest.approx([start, end])
        assert re.match(r"\d+ spans, .*Enter", page.evaluate(f"({search})('Backward rank')"))
        enter = "document.querySelector('.search input').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))"
        marked = glyphs_of(page, ".timeline")[1][-1]["data"]
        marks = list(zip(marked["left"], marked["right"]))
        assert len(set(marks)) > 1
        for left, right in [*marks, marks[0]]:  # the search has shown the first
            assert page.evaluate(RANGE) == pytest.approx([3 * left - 2 * right, 3 * right - 2 * left])
            page.evaluate(enter)
        assert page.evaluate("getComputedStyle(document.querySelector('.timeline .axis')).position") == "sticky"


# The keys of an element's colours: text and colour of each, as "#rrggbb".
KEYS = """((selector) => Object.fromEntries([...document.querySelectorAll(selector + ' .key')].map((key) => {
  const color = getComputedStyle(key.querySelector('i')).backgroundColor.match(/\\d+/g);
  return [key.textContent, '#' + color.map((part) => Number(part).toString(16).padStart(2, '0')).join('')];
})))"""


@browser.needed
def test_the_timeline_has_bands_of_strategies_and_spans_without_borders(simulated):
    with browser.Browser() as page:
        page.open(simulated[0])
        _, glyphs = glyphs_of(page, ".timeline")  # after the strip with the time axis
        keys = page.evaluate(KEYS + "('.timeline')")
        timeline = data_of(simulated[0])["runs"][0]["timelines"][0]
        bands = next(glyph["data"] for glyph in glyphs if glyph["fill"] == {"field": "color"}
                     and all(top < 0 for top in glyph["data"]["top"]))
        assert [what.split(":")[0] for what in bands["what"]] == ["strategy 1,2,2", "strategy 4,1,1"]
        assert len(set(bands["color"])) == 2
        for what, color, length in zip(bands["what"], bands["color"], bands["length"]):
            assert "document" in what and keys[what] == color and length.endswith("s, predicted")
        assert all(0 <= left < right <= 1.001e3 * timeline["predicted_seconds"]
                   for left, right in zip(bands["left"], bands["right"]))
        names = [glyph["data"]["text"] for glyph in glyphs if glyph["type"] == "Text"]
        assert len(names) == 1 and set(names[0]) <= {"1,2,2", "4,1,1"} and names[0]

        kinds = data_of(simulated[0])["kinds"]
        spans = {glyph["data"]["what"][0]: glyph for glyph in glyphs if "index" in glyph["data"]}
        assert set(spans) == {kinds[kind] for kind in timeline["spans"]["kind"]}
        for what, glyph in spans.items():
            assert glyph["line"] is None, what
            assert glyph["fill"] == keys["idle: waiting for the next task" if what == "waiting" else what]
        waits = spans["waiting"]["data"]["name"]
        assert "until all ranks have ended the step" in waits
        assert any(name.startswith("before micro-batch ") for name in waits)


@browser.needed
def test_every_bar_of_the_candidates_has_its_value(simulated):
    units = {"s": 1, "ms": 1e-3, "\u00b5s": 1e-6, "B": 1, "KiB": 2**10, "MiB": 2**20}
    able = sorted((c for c in data_of(simulated[0])["runs"][0]["candidates"] if c["seconds"] is not None),
                  key=lambda c: (not c["fits"], c["seconds"]))
    with browser.Browser() as page:
        page.open(simulated[0])
        figures = glyphs_of(page, "#candidates")
    for field, (bars, texts) in zip(("seconds", "peak"), figures, strict=True):
        assert (bars["type"], texts["type"]) == ("HBar", "Text") and len(able) == 7
        assert bars["data"] == texts["data"]
        shown = [number * units[unit] for number, unit in
                 ((float(text.split()[0]), text.split()[1]) for text in texts["data"]["text"])]
        assert shown == pytest.approx([c[field] for c in able], rel=0.01)
        ratio = shown[0] / bars["data"]["right"][0]
        assert [ratio * right for right in bars["data"]["right"]] == pytest.approx(shown, rel=0.02)


@browser.needed
def test_the_values_of_the_candidates_stand_above_the_line_of_the_limit(simulated):
    with browser.Browser() as page:
        page.open(simulated[0])
        texts = page.evaluate("""[...Bokeh.index].filter(
            (v) => v.model.type === 'Figure' && v.el.closest('#candidates')).flatMap((v) => v.model.renderers.filter(
                (r) => r.glyph.type === 'Text').map(
                    (r) => [r.level, r.glyph.background_fill_color.value === COLORS.panel]))""")
        assert texts == [["overlay", True]] * 2


def test_a_page_tells_peaks_at_predicted_times_from_those_in_the_worst_order(simulated, measured):
    path, figures = simulated
    run = data_of(path)["runs"][0]
    tile = dict(run["tiles"])["highest predicted peak of any rank"]
    assert float(tile.split()[0]) * 2**10 == pytest.approx(max(figures["peak_bytes"]), rel=0.01)
    this, = (c for c in run["candidates"] if c["chosen"])
    assert this["peak"] == figures["peak_bound_bytes"] > max(figures["peak_bytes"])
    assert "highest measured peak of any rank" in dict(data_of(measured)["runs"][0]["tiles"])


@browser.needed
def test_a_chart_that_was_resized_looks_as_before(simulated):
    """Nothing stays at its edges."""
    edges = """(() => {
      const found = [];
      const find = (node) => node.querySelectorAll('*').forEach((e) => {
        if (e.tagName === 'CANVAS') found.push(e);
        if (e.shadowRoot) find(e.shadowRoot);
      });
      find(document.querySelector('#candidates'));
      return found.map((canvas) => [canvas.width, canvas.getContext('2d').getImageData(0, 0, 1, canvas.height).data
          .join()]);
    })()"""
    with browser.Browser() as page:
        page.open(simulated[0])
        before = page.evaluate(edges)
        for width in (150, 1400):
            page.send("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
            wait_until(lambda: (page.evaluate(edges)[0][0] == before[0][0]) == (width == 1400))
            page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate(edges) == before


def wait_until(there, seconds=60):
    end = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


@browser.needed
def test_a_live_page_follows_its_run_until_it_ends(run_folder, tmp_path):
    out, page_file = tmp_path / "run", tmp_path / "live.html"
    shutil.copytree(run_folder, out)
    lines = (out / "log.jsonl").read_text().splitlines(keepends=True)
    (out / "log.jsonl").write_text("".join(lines[:2]))
    steps = "document.body && document.body.dataset.state === 'ready' && page.runs[0].steps.step.length"
    # Who holds the lock is the run: here, the test.
    with open(out / "lock", "a", encoding="utf-8") as lock, browser.Browser() as page:
        fcntl.flock(lock, fcntl.LOCK_EX)
        following = subprocess.Popen([tiny.PROGRAM, "report", out, "--live", "--out", page_file], text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=tiny.ENVIRONMENT)
        try:
            wait_until(page_file.exists)
            assert page.open(page_file) == "ready", page.errors()
            wait_until(lambda: page.evaluate(steps) == 2)  # it may just be reloading
            wait_until(lambda: "reloads" in (page.evaluate("document.querySelector('.live')?.textContent") or ""))
            with open(out / "log.jsonl", "a", encoding="utf-8") as log:
                log.writelines(lines[2:])
            wait_until(lambda: page.evaluate(steps) == len(lines))
            assert following.poll() is None
            fcntl.flock(lock, fcntl.LOCK_UN)
            told, errors = following.communicate(timeout=tiny.HANG)
        finally:
            following.kill()
        assert following.returncode == 0 and told.splitlines() == [f"{page_file}, until the run ends",
                                                                   str(page_file)], errors
        wait_until(lambda: page.evaluate(steps) and page.evaluate("!document.querySelector('.live')"))
    assert data_of(page_file)["reload_seconds"] == 0


@browser.needed
def test_pages_draw_without_errors_and_without_a_network(simulated, measured, run_folder, tmp_path):
    both = tmp_path / "both.html"
    assert tiny.run([tiny.PROGRAM, "report", run_folder, run_folder, "--out", both]).returncode == 0
    for path, sections in [(simulated[0], {"timeline", "shares", "longest", "memory", "buckets", "documents",
                                           "links", "switches", "candidates"}),
                           (measured, {"steps", "timeline", "shares", "longest", "slowest", "memory", "buckets",
                                       "documents", "links", "switches"}),
                           (both, {"steps", "timeline", "shares", "longest", "slowest", "memory", "buckets",
                                   "documents", "links", "switches"})]:
        with browser.Browser() as page:
            assert page.open(path) == "ready", page.errors()
            assert page.errors() == [] and len(page.requests()) == 1
            assert set(page.evaluate("[...document.querySelectorAll('section[id]')].map((s) => s.id)")) == sections
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            assert page.evaluate("document.querySelectorAll('.headline b').length") == len(data_of(path)["runs"])
            assert page.evaluate(UNNAMED) == []
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
    named = re.compile(r"micro-batch \d+ of \d+, layers \d+(-\d+)?, replica \d+ of strategy \d,\d,\d, \d+ documents?"
                       r"|unit \d+(, round \d+)?, strategy \d,\d,\d|update u\d+|norm")
    with browser.Browser(height=900) as page:
        page.open(simulated[0])
        page.evaluate("document.querySelector('.timeline').scrollIntoView()")
        box = page.evaluate("(() => { const b = document.querySelector('.timeline > "
                            "div:last-child').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        x = box[0] + 0.2 * box[2]
        before = page.evaluate(RANGE)
        seen = ""
        # The first row, which is below one or two lines of strategies, has a span somewhere.
        for y, step in ((box[1] + below, step) for below in (45, 65) for step in range(40)):
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
