"""Jobs of every family and kind of strategy reproduce the golden file."""

import json

import golden
import pytest

EXPECTED = json.loads(golden.FILE.read_text())


def test_the_golden_file_has_every_job():
    assert [name for name, *_ in golden.jobs()] == list(EXPECTED) and len(EXPECTED) >= 60


@pytest.mark.parametrize("name, model, strategies, settings, precision", golden.jobs(),
                         ids=lambda value: value if isinstance(value, str) else "")
def test_a_job_reproduces_its_golden_results(tmp_path, corpus, name, model, strategies, settings, precision):
    assert golden.differences(golden.run_job(tmp_path, corpus, strategies, model, settings, precision),
                              EXPECTED[name], precision, bits=False) == []
