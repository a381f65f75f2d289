"""Published settings of systems with a degree for each document (bench/peers), and the smallest of them simulated."""

import sys
import tomllib

import pytest
import tiny_runs as tiny

sys.path.insert(0, str(tiny.ROOT / "bench"))
import peers_published as peers  # noqa: E402
import simulations  # noqa: E402

TABLES = {name: tomllib.loads((tiny.ROOT / "bench" / "peers" / f"{name}.toml").read_text()) for name in peers.systems()}
CASES = {f"{name}: {case['name']}": table["defaults"] | case for name, table in TABLES.items()
         for case in table["case"]}


@pytest.mark.parametrize("name", TABLES)
def test_a_system_tells_its_sources_and_what_is_assumed(name):
    assert all(TABLES[name][key] for key in ("title", "where", "assumed"))
    assert "arXiv" in TABLES[name]["where"] or "NVIDIA" in TABLES[name]["where"]


@pytest.mark.parametrize("case", CASES)
def test_lengths_are_a_histogram_up_to_the_context(case):
    bins = peers.bins_of(CASES[case])
    assert sum(count for *_, count in bins) == peers.DOCUMENTS and all(count >= 0 for *_, count in bins)
    assert all(lo < hi for lo, hi, _ in bins) and bins[-1][:2] == [CASES[case]["context"], CASES[case]["context"] + 1]
    assert all(before[1] <= after[0] for before, after in zip(bins, bins[1:]))


def test_documents_above_the_context_are_cut_to_it():
    assert simulations.cut_off([[8, 16, 600_000], [16, 64, 300_000], [64, 65, 100_000]], 32) == [
        [8, 16, 600_000], [16, 32, 150_000], [32, 33, 250_000]]


def test_a_log_normal_distribution_has_its_mean_and_its_ends():
    bins = peers.log_normal(1024, 0.5, 16, 2**20)
    mean = sum((lo * hi)**0.5 * count for lo, hi, count in bins) / peers.DOCUMENTS
    assert mean == pytest.approx(1024, rel=0.01)
    cut = peers.log_normal(1024, 1.5, 128, 8192)
    assert cut[0][0] == 128 and cut[0][2] > 0.1 * peers.DOCUMENTS  # shorter ones count as the shortest
    assert cut[-1] == [8192, 8193, cut[-1][2]] and cut[-1][2] > 0.005 * peers.DOCUMENTS


def test_a_case_replaces_values_of_the_shipped_cluster(tmp_path):
    file = peers.cluster_file(CASES["flexsp: 7B, GitHub, full recomputation"], tmp_path)
    found = tomllib.loads(file.read_text())
    shipped = tomllib.loads((tiny.ROOT / "clusters" / "a100-80g.toml").read_text())
    assert found["device"]["memory"] == "39.4 GiB" and found["links"]["inter_host"]["shared_by"] == 8
    assert found["links"]["intra_host"] == shipped["links"]["intra_host"]


def test_the_smallest_case_is_timed_and_its_quickest_strategies_are_kept(tmp_path):
    case = CASES["megatron_dynamic_cp: 4 GPUs"]
    found = peers.evaluate(tiny.PROGRAM, case, 2)
    assert list(found) == ["baseline", "uniform", "document", "plan"] and all(one["fits"] for one in found.values())
    alone = peers.simulations_of(tiny.PROGRAM, case, tmp_path, 2)
    times = [alone.of(strategy)["step_seconds"] for strategy in case["baseline"]]
    assert found["baseline"]["step_seconds"] == min(times)
    assert found["plan"]["step_seconds"] <= 1.001 * found["uniform"]["step_seconds"]
    cells = [cell.strip() for cell in peers.row_of(case, found).split("|")[1:-1]]
    assert len(cells) == 9 and float(cells[7]) == pytest.approx(min(times) / found["plan"]["step_seconds"], abs=0.006)
    assert float(cells[8]) >= float(cells[7])
