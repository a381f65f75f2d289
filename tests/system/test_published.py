"""Published training steps (bench/published): `simulate` on the shipped clusters gives their times, their activations, and that they fit.

Cluster files were fitted to the sources of use "calibration"; the bounds of the others are what came out."""

import sys

import pytest
import tiny_runs as tiny

sys.path.insert(0, str(tiny.ROOT / "bench"))
import published_runs as published  # noqa: E402

MOST_RANKS = 512  # larger runs take their time; bench/published_runs.py has them all, and the source that is not below
# Mean and worst error of a source's rows.
BOUNDS = {"korthikanti2022": (0.03, 0.06), "nemotron15b": (0.01, 0.015), "gpt3_175b": (0.01, 0.015), "nemotron340b": (0.025, 0.03), "zero_bubble": (0.02, 0.04),
          "mosaic_h100_large": (0.35, 0.40)}
CASES = [(name, row) for name in BOUNDS for row in published.source(name)["run"] if published.ranks_of(row) <= MOST_RANKS]
ROWS = {f"{name}: {row['name']}": (name, row) for name, row in CASES}


@pytest.fixture(scope="module")
def simulated():
    found = {}

    def figures(case):
        if case not in found:
            found[case] = published.simulated(tiny.PROGRAM, *ROWS[case])
        return found[case]

    return figures


@pytest.mark.parametrize("name", BOUNDS)
def test_times_of_steps_are_within_the_bounds_of_their_source(simulated, name):
    errors = [published.time_error(row, simulated(case)) for case, (of, row) in ROWS.items() if of == name and published.seconds_of(row)]
    mean, worst = published.mean_and_worst(errors)
    assert mean <= BOUNDS[name][0] and worst <= BOUNDS[name][1]


@pytest.mark.parametrize("case", [case for case, (_, row) in ROWS.items() if "activations_gib" in row])
def test_activations_of_the_fullest_rank_are_within_three_percent(simulated, case):
    assert max(simulated(case)["activation_bytes"]) / 2**30 == pytest.approx(ROWS[case][1]["activations_gib"], rel=0.03)


@pytest.mark.parametrize("case", [case for case, (_, row) in ROWS.items() if "fits" in row])
def test_what_fits_a_device_is_known(simulated, case):
    assert simulated(case)["fits"] == ROWS[case][1]["fits"]


def test_calibration_and_test_are_sources_apart():
    uses = {name: published.source(name)["use"] for name in published.sources()}
    assert set(uses.values()) == {"calibration", "test"}
