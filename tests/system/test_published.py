"""Published runs of Megatron-LM on A100-80G: `simulate` on the shipped cluster gives their times and their activations."""

import sys

import pytest
import tiny_runs as tiny

sys.path.insert(0, str(tiny.ROOT / "bench"))
import published_runs as published  # noqa: E402


@pytest.fixture(scope="module")
def simulated():
    found = {}

    def figures(*case):
        if case not in found:
            found[case] = published.simulated(tiny.PROGRAM, *case)
        return found[case]

    return figures


@pytest.mark.parametrize("case", published.SECONDS, ids="-".join)
def test_the_time_of_a_step_is_within_five_percent(simulated, case):
    assert simulated(*case)["step_seconds"] == pytest.approx(published.SECONDS[case], rel=0.05)


@pytest.mark.parametrize("case", published.ACTIVATIONS, ids="-".join)
def test_activations_of_the_fullest_rank_are_within_three_percent(simulated, case):
    assert max(simulated(*case)["activation_bytes"]) / 2**30 == pytest.approx(published.ACTIVATIONS[case], rel=0.03)


def test_what_does_not_fit_the_device_is_seen(simulated):
    assert max(simulated("175b", "none")["peak_bytes"]) > 79.25 * 2**30 > max(simulated("175b", "sel")["peak_bytes"])
