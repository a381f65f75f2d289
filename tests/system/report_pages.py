"""Runs with pages of `switchyard report`, and the data of a page."""

import json
import re

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


def page_of(out):
    """The data of the run's page."""
    result = tiny.run([tiny.PROGRAM, "report", out])
    assert result.returncode == 0, result.stderr
    return data_of(out / "report.html")["runs"][0]
