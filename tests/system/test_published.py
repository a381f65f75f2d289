"""Published training steps (bench/published): `simulate` gives their times, their activations, and that they fit.

Cluster files were fitted to the rows of use "calibration"; the bounds of the others are what came out."""

import sys

import pytest
import tiny_runs as tiny

sys.path.insert(0, str(tiny.ROOT / "bench"))
import published_runs as published  # noqa: E402

MOST_RANKS = 384  # larger runs take too long here; bench/published_runs.py has them all
# Mean and worst error of a source's rows of one use.
BOUNDS = {("korthikanti2022", "calibration"): (0.04, 0.08), ("nemotron15b", "calibration"): (0.01, 0.015),
          ("gpt3_175b", "test"): (0.035, 0.04),
          ("nemotron340b", "test"): (0.035, 0.04), ("zero_bubble", "test"): (0.02, 0.04),
          ("bigscience", "calibration"): (0.025, 0.08), ("bigscience", "test"): (0.035, 0.08),
          ("bigscience_later", "test"): (0.035, 0.12),
          ("mosaic_h100_large", "calibration"): (0.03, 0.04), ("mosaic_h100_large", "test"): (0.06, 0.095),
          ("torchtitan_a100", "test"): (0.025, 0.05), ("torchtitan_h100", "test"): (0.042, 0.096),
          ("torchtitan_h100_eager", "test"): (0.035, 0.035)}
CASES = [(name, row) for name, use in BOUNDS for row in published.source(name)["run"] if row["use"] == use
         and published.ranks_of(row) <= MOST_RANKS]
ROWS = {f"{name}: {row['name']}": (name, row) for name, row in CASES}


@pytest.fixture(scope="module")
def simulated():
    found = {}

    def figures(case):
        if case not in found:
            name, row = ROWS[case]
            found[case] = published.simulated(tiny.PROGRAM, published.cluster_of(published.source(name)), row)
        return found[case]

    return figures


@pytest.mark.parametrize("name,use", BOUNDS)
def test_times_of_steps_are_within_the_bounds_of_their_source(simulated, name, use):
    errors = [published.time_error(row, simulated(case)) for case, (of, row) in ROWS.items()
              if of == name and row["use"] == use and published.seconds_of(row)]
    mean, worst = published.mean_and_worst(errors)
    assert mean <= BOUNDS[name, use][0] and worst <= BOUNDS[name, use][1]


def test_steps_that_nothing_was_fitted_to_are_within_four_percent_in_the_mean_and_twelve_at_worst(simulated):
    errors = [published.time_error(row, simulated(case)) for case, (_, row) in ROWS.items() if row["use"] == "test"
              and published.seconds_of(row)]
    mean, worst = published.mean_and_worst(errors)
    assert len(errors) > 80 and mean <= 0.04 and worst <= published.WORST_ERROR


@pytest.mark.parametrize("case", [case for case, (_, row) in ROWS.items() if "activations_gib" in row])
def test_activations_of_the_rank_with_the_highest_peak_are_within_three_percent(simulated, case):
    assert max(simulated(case)["activation_bytes"]) / 2**30 == pytest.approx(ROWS[case][1]["activations_gib"], rel=0.03)


@pytest.mark.parametrize("case", [case for case, (_, row) in ROWS.items() if "fits" in row])
def test_what_fits_a_device_is_known(simulated, case):
    assert simulated(case)["fits"] == ROWS[case][1]["fits"]


def test_every_row_is_for_calibration_or_for_the_test_or_contradicted_by_its_neighbours():
    uses = {name: [row["use"] for row in published.source(name)["run"]] for name in published.sources()}
    assert {use for rows in uses.values() for use in rows} == set(published.USES)
    # If a system was fitted to some rows, the others are the test.
    assert {name for name, rows in uses.items() if {"calibration", "test"} <= set(rows)} == {
        "bigscience", "mosaic_h100_large", "torchtitan_a100", "torchtitan_h100", "torchtitan_h100_eager"}
    assert {name: uses[name].count("calibration") for name in uses if name.startswith("torchtitan")} == {
        "torchtitan_a100": 1, "torchtitan_h100": 1, "torchtitan_h100_eager": 1}
    assert uses["bigscience"].count("calibration") == 9
    assert {name: rows.count("contradicted") for name, rows in uses.items() if "contradicted" in rows} == {
        "bigscience_later": 4}


def test_neighbours_of_a_single_step_are_the_runs_of_the_same_work():
    rows = {row["name"]: row for row in published.source("bigscience_later")["run"]}
    slow = rows["82 x 13312, 104 heads, 8,4,12, 2 x 128, 02-28"]
    usual = published.usual_seconds("jean-zay")[published.work_of(slow)]
    assert usual == pytest.approx((104.8 + 108.8) / 2, abs=0.1)  # mean of 104.5, 104.8, 108.8 and its own 123.7
    assert slow["use"] == "contradicted" and published.seconds_of(slow) > 1.12 * usual
    alone = rows["94 x 13312, 128 heads, 8,4,12, 2 x 128, 02-28"]
    assert published.work_of(alone) not in published.usual_seconds("jean-zay") and alone["use"] == "test"


def test_copies_of_what_collectives_move_are_read_and_written_at_the_rate_of_memory(tmp_path):
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[device]\nmemory_bandwidth = "2 TB/s"\nmemory_curve = [["1 MB", 0.1], ["1 GB", 0.5]]\n')
    row = {"layers": 3, "layer_copies": 10, "other_copies": 4, "sequences": 8, "dp": 2, "context": 1000, "hidden": 500}
    # 34 copies of 4 sequences of 1000 tokens of 500 features in 16 bits, read and written, at 1 TB/s
    assert published.copy_seconds(cluster, row) == pytest.approx(34 * 2 * 4 * 1000 * 500 * 2 / 1e12)
    copied = [row for row in published.source("torchtitan_h100")["run"] if row["layer_copies"]]
    assert len(copied) == 5 and all(row["tp"] == 8 for row in copied)
    assert not any(row["layer_copies"] for name in published.sources() if name != "torchtitan_h100"
                   for row in published.source(name)["run"])
