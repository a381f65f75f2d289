"""bench/own_runs.py with a fake program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "own_runs.py"

# Steps take 2 s, the first one 5 s; the prediction depends on the environment.
PROGRAM = """
import json, os, sys
from pathlib import Path
words = sys.argv[1:]
if words[0] == "profile":
    out = Path(words[words.index("--out") + 1])
    out.write_text("{}")
    if os.environ.get("COUNT"):  # each prediction is twice the one before
        count = Path(os.environ["COUNT"])
        factor = 2 * float(count.read_text()) if count.exists() else 1.0
        count.write_text(str(factor))
elif words[0] == "simulate":
    assert Path(words[words.index("--cluster") + 1]).exists()
    step = float(os.environ.get("PREDICTED", 2))
    if os.environ.get("COUNT"):
        step *= float(Path(os.environ["COUNT"]).read_text())
    print("said before")
    count = int(words[words.index("--steps") + 1])
    print(json.dumps(dict(step_seconds=step, seconds_of_steps=[step] * count, idle_seconds=0, communication_seconds=0,
                          peak_bytes=[1 << 20, int(os.environ.get("PEAK", 2 << 20))])))
else:
    if os.environ.get("BREAKS"):
        sys.exit("switchyard: data.path is missing.")
    out = Path(words[words.index("--out") + 1])
    out.mkdir(parents=True, exist_ok=True)
    lines = [dict(step=i, tokens=1000, tokens_per_second=1000 / (5 if i == 1 else 2),
                  peak_bytes_per_rank=[2 << 20, 1 << 20]) for i in range(1, 6)]
    (out / "log.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
"""


@pytest.fixture
def own_runs(tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable} -S\n{PROGRAM}")
    program.chmod(0o755)

    def run(*arguments, **environment):
        words = [sys.executable, SCRIPT, "--program", program, "--settle", "0", "--out", tmp_path / "results",
                 *arguments]
        return subprocess.run(words, env=environment, text=True, capture_output=True, check=False)

    return run


def test_a_job_is_measured_without_its_first_step_beside_its_prediction(own_runs):
    done = own_runs("--rounds", "1", "--only", "dp 2, length 256")
    assert done.returncode == 0, done.stderr
    assert "| dp 2, length 256 | one machine | 2.000 | +0.0% | 0% | 2 | +0.0% |" in done.stdout
    assert "1 jobs: step time off by 0.0% on average, 0.0% at worst; memory by 0.0% at worst." in done.stdout


@pytest.mark.parametrize("environment, told", [({"PREDICTED": "2.3"}, "| +15.0% |"),
                                               ({"PREDICTED": "1.7"}, "| -15.0% |"),
                                               ({"PEAK": str(int(2.2 * 2**20))}, "memory by 10.0% at worst")])
def test_a_prediction_that_is_too_far_off_is_a_failure(own_runs, environment, told):
    done = own_runs("--rounds", "1", "--only", "dp 2, length 256", **environment)
    assert done.returncode == 1 and told in done.stdout, done.stdout


def test_all_jobs_are_kept_in_a_table(own_runs, tmp_path):
    assert own_runs("--rounds", "1").returncode == 0
    results = [json.loads(line) for line in (tmp_path / "results/own_runs.jsonl").read_text().splitlines()]
    assert len(results) >= 30 and len({result["job"] for result in results}) == len(results)
    table = (tmp_path / "results/own_runs.md").read_text()
    assert all(f"| {result['job']} |" in table for result in results)


def test_a_run_that_fails_is_reported(own_runs):
    done = own_runs("--rounds", "1", "--only", "dp 2, length 256", BREAKS="1")
    assert done.returncode == 1 and "data.path is missing" in done.stderr


def test_a_round_profiles_anew_and_predictions_are_means(own_runs, tmp_path):
    done = own_runs("--rounds", "2", "--only", "dp 2, length 256", COUNT=str(tmp_path / "profiles"))
    assert done.returncode == 1, done.stderr  # 2 s and 4 s were predicted
    assert "| dp 2, length 256 | one machine | 2.000 | +50.0% | 0% | 2 | +0.0% |" in done.stdout


def test_a_gpus_jobs_have_one_rank_and_a_table_of_their_own(own_runs, tmp_path):
    done = own_runs("--rounds", "1", "--cuda")
    assert done.returncode == 0, done.stderr
    assert "| 7B width, length 4096 | one GPU | 2.000 | +0.0% | 0% | 2 | +0.0% |" in done.stdout
    assert "--rounds 1 --cuda`" in (tmp_path / "results/gpu_runs.md").read_text()
    assert not (tmp_path / "results/own_runs.md").exists()


TOOL = """
import os, sys
words = sys.argv[1:]
with open(os.environ["TOOL_LOG"], "a") as log:
    log.write(" ".join(words[: words.index("--") if "--" in words else None]) + "\\n")
if words[0] == "launch":
    os.execvp("env", words[words.index("--") + 1:])
"""


def test_on_hosts_ranks_meet_over_tcp_at_two_rates(own_runs, tmp_path):
    tool = tmp_path / "tool"
    tool.write_text(f"#!{sys.executable}\n{TOOL}")
    tool.chmod(0o755)
    log = tmp_path / "log"
    done = own_runs("--rounds", "1", "--cluster", tool, TOOL_LOG=str(log), PATH=os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "results/runs_on_hosts.md").read_text()
    assert "| ZeRO-3 | 100mbit between hosts | 2.000 | +0.0% |" in table and "| 400mbit between hosts |" in table
    assert "one machine" not in table and not (tmp_path / "results/own_runs.md").exists()
    commands = [line.split()[0] for line in log.read_text().splitlines()]
    assert [commands.count(command) for command in ("up", "down")] == [2, 2] and commands.count("launch") > 20
