"""The table of long documents (bench/long_documents.py): its strategies, and a small cell of it."""

import argparse
import math
import re
import sys

import pytest
import tiny_runs as tiny

sys.path.insert(0, str(tiny.ROOT / "bench"))
import long_documents as table  # noqa: E402


@pytest.mark.parametrize("gpus", [64, 256])
@pytest.mark.parametrize("context", table.CONTEXTS)
def test_strategies_use_all_devices_and_split_no_document_further_than_it_is_worth(gpus, context):
    for strategy in (*table.defaults(gpus, context), *table.uniform(gpus, context)):
        degrees = {axis: int(size) for axis, size in re.findall(r"(dp|tp|ulysses|ring)=(\d+)", strategy)}
        assert math.prod(degrees.values()) == gpus
        assert context // (degrees["ring"] * degrees.get("ulysses", 1)) >= table.LEAST_SHARE


def test_a_cell_has_a_time_for_each_way_and_the_plan_is_never_slower_than_the_best_of_one_bucket(monkeypatch):
    monkeypatch.setattr(table, "TOKENS", 2**16)
    options = argparse.Namespace(program=tiny.PROGRAM, cluster="h100-80g", lengths="github", seconds=1)
    found = table.evaluate(options, "3b", 8, 2**15)
    assert list(found) == ["a0", "a", "b", "c", "d"] and all(one["fits"] for one in found.values())
    assert found["d"]["step_seconds"] <= found["b"]["step_seconds"]
    cells = [cell.strip() for cell in table.row_of("3b", 8, 2**15, found).split("|")[1:-1]]
    assert cells[:3] == ["3b", "8", "32768"] and len(cells) == 10
    assert float(cells[8]) == pytest.approx(found["a0"]["step_seconds"] / found["d"]["step_seconds"], abs=0.006)
