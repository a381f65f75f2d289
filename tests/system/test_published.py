"""Published training steps (bench/published): `simulate` gives their times, their activations, and that they fit.

Cluster files were fitted to the rows of use "calibration"; the bounds of the others are what came out."""

import sys

import pytest
import tiny_runs as tiny

sys.path.insert(0, str(tiny.ROOT / "bench"))
import published_runs as published  # noqa: E402

MOST_RANKS = 512  # larger runs take too long here; bench/published_runs.py has them all
# Mean and worst error of a source's rows of one use.
BOUNDS = {("korthikanti2022", "calibration"): (0.03, 0.06), ("nemotron15b", "calibration"): (0.01, 0.015),
          ("gpt3_175b", "test"): (0.01, 0.015),
          ("nemotron340b", "test"): (0.025, 0.03), ("zero_bubble", "test"): (0.02, 0.04),
          ("bigscience", "calibration"): (0.04, 0.08),
          ("mosaic_h100_large", "calibration"): (0.04, 0.06)}
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
    errors = [published.time_error(row, simulated(case)) for case, (of, row) in ROWS.items() if of == name
              and published.seconds_of(row)]
    mean, worst = published.mean_and_worst(errors)
    assert mean <= BOUNDS[name, use][0] and worst <= BOUNDS[name, use][1]


@pytest.mark.parametrize("case", [case for case, (_, row) in ROWS.items() if "activations_gib" in row])
def test_activations_of_the_rank_with_the_highest_peak_are_within_three_percent(simulated, case):
    assert max(simulated(case)["activation_bytes"]) / 2**30 == pytest.approx(ROWS[case][1]["activations_gib"], rel=0.03)


@pytest.mark.parametrize("case", [case for case, (_, row) in ROWS.items() if "fits" in row])
def test_what_fits_a_device_is_known(simulated, case):
    assert simulated(case)["fits"] == ROWS[case][1]["fits"]


def test_every_row_is_for_calibration_or_for_the_test():
    uses = {name: {row["use"] for row in published.source(name)["run"]} for name in published.sources()}
    assert set.union(*uses.values()) == {"calibration", "test"}
    # If a system was fitted to some rows, the others are the test.
    assert {name for name, both in uses.items() if len(both) == 2} == {"bigscience", "mosaic_h100_large"}
    assert [row["use"] for row in published.source("bigscience")["run"]].count("calibration") == 9
