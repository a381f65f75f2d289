"""Two- and three-dimensional tensor parallelism (tp, inner, depth): how `plan` ranks it, and AxoNN's findings about it.

The models are those of AxoNN (S. Singh et al., arXiv 2502.08145, Table II), on hosts of Perlmutter."""

import itertools
import re
import statistics
import sys

import pytest
import tiny_runs as tiny

sys.path.insert(0, str(tiny.ROOT / "bench"))
import axonn_comparison as axonn  # noqa: E402
import gpt_jobs  # noqa: E402

RANKS, SEQUENCES = 32, 256  # 8 for a device
GPT_20B = axonn.model("20B")


def seconds(strategy, model=GPT_20B, sequences=SEQUENCES, ranks=RANKS):
    found = gpt_jobs.simulated(tiny.PROGRAM, model, strategy, sequences, ranks, axonn.CLUSTER)
    return found["step_seconds"], found["fits"]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    """(seconds in the simulator, seconds in the planner's model, strategy) of the plans that differ in degrees."""
    job = tmp_path_factory.mktemp("axonn") / "job.toml"
    job.write_text(gpt_jobs.text_of(GPT_20B, SEQUENCES, RANKS))
    found = tiny.run([tiny.PROGRAM, "plan", job, "--cluster", axonn.CLUSTER, "--degrees", "tp,inner,depth", "--buckets",
                      1, "--top", 30, "--seconds", 0])
    assert found.returncode == 0, found.stderr
    rows = re.findall(r"^ +\d+ +([\d.]+) s +([\d.]+) s\n +to 2048: (\S+)", found.stdout, re.M)
    return [(float(simulated), float(planned), strategy) for simulated, planned, strategy in rows]


def test_the_planner_ranks_degrees_as_the_simulator_does(ranked):
    simulated, planned, strategies = zip(*ranked)
    assert len(ranked) == 30
    for degree in ("tp", "inner", "depth"):
        assert 5 < sum(f"{degree}=" in strategy for strategy in strategies) < 30, degree
    assert statistics.correlation(simulated, planned) > 0.95  # not of their places: many differ by less than is shown
    best_of_model = simulated[planned.index(min(planned))]
    assert best_of_model <= 1.02 * min(simulated)


def test_none_of_axonns_configurations_is_quicker_than_the_planned_one(ranked):
    """Rows, columns, depth, replicas: all with 16 parts of the model or more whose tensor ranks divide the heads."""
    quickest, degrees = ranked[0][0], [1, 2, 4, 8, 16, 32]
    grids = [(rows, columns, depth, RANKS // (rows * columns * depth))
             for rows, columns, depth in itertools.product(degrees, repeat=3)
             if 16 <= rows * columns * depth <= RANKS and GPT_20B.heads % (rows * columns) == 0]
    assert len(grids) == 20
    times = {grid: seconds(axonn.strategy(*grid, min(16, SEQUENCES // (grid[2] * grid[3])))) for grid in grids}
    fitting = [time for time, fits in times.values() if fits]
    assert len(fitting) > 10 and quickest <= 1.01 * min(fitting), times


def test_depth_is_quicker_than_tensor_parallelism_in_hosts_and_zero_3_between_them(ranked):
    """The paper compares with that (Figure 7): its model's configurations are 13 to 45% better on Frontier."""
    quickest, _, strategy = ranked[0]
    assert "depth=" in strategy
    assert quickest < 0.87 * seconds("dp=8,tp=4,zero=3,recompute=full,micro_batch_sequences=8")[0]


def test_four_rows_and_eight_columns_are_the_quickest_32_tensor_ranks():
    """AxoNN's communication model ranks them first (axonn-ai/Megatron-AxoNN, commit 8a4ae24, examples/comm_model.py,
    for the 80B model with 64 sequences on 128 devices, 4 of them in depth). Its tensor parallelism sums whole
    activations."""
    times = {columns: seconds(f"{axonn.strategy(32 // columns, columns, 4, 1, 16)},sequence_parallel=false",
                              axonn.model("80B"), 64, 128)[0] for columns in (1, 2, 4, 8)}
    assert min(times, key=times.get) == 8 and times[8] < 0.9 * times[1]
