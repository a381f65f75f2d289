"""tools/demo.py with a program that only pretends to train."""

import json
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "tools" / "demo.py"

PROGRAM = '''\
#!{python}
import json, os, sys
from pathlib import Path
args = sys.argv[1:]
with open("calls.txt", "a") as calls:
    print(json.dumps(args), file=calls)
if args[0] == "data":
    out = Path(args[args.index("--out") + 1])
    out.mkdir(parents=True, exist_ok=True)
    (out / "meta.json").write_text("{{}}")
    sys.exit(0)
if args[0] in ("profile", "report"):
    if args[0] == os.environ.get("BREAKS"):
        sys.exit(f"switchyard: no {{args[0]}}")
    Path(args[args.index("--out") + 1]).write_text(args[0])
    sys.exit(0)
out, steps = Path(args[args.index("--out") + 1]), int(args[args.index("--steps") + 1])
strategy = args[args.index("--set") + 1].split('strategy="')[1].split('"')[0] if "--set" in args else "hot"
if strategy == "auto":
    print("plan: chosen\\nplan: instead\\nplan: limited", file=sys.stderr)
if strategy == os.environ.get("BREAKS"):
    sys.exit("switchyard: data/python/corpus.bin is cut off.")
if strategy in os.environ.get("TOO_LARGE", "").split(";"):
    sys.exit("switchyard: step 1: rank 0 needs 9 GiB, 1 GiB more than the memory budget. Largest: activations.")
out.mkdir(parents=True, exist_ok=True)
off = 1.001 if strategy == os.environ.get("DIFFERS") else 1
with open(out / "log.jsonl", "w") as log:
    for step in range(1, steps + 1):
        print("step", step, file=sys.stderr)
        print(json.dumps(dict(step=step, loss=9.0 * off / step, tokens=1000, seconds=0.5,
                              peak_bytes_per_rank=[1 << 20, 3 << 20], intra_bytes=2000000, inter_bytes=0,
                              switch_seconds=0.05, padding_share=0.01, bubble_share=0.2)), file=log)
'''


@pytest.fixture
def demo(tmp_path):
    """Runs the demo in an empty folder; environment variables control what the program does."""
    program = tmp_path / "program"
    program.write_text(textwrap.dedent(PROGRAM).format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/job.toml").write_text("seed = 1\n")

    def run(*arguments, **environment):
        done = subprocess.run([sys.executable, DEMO, str(program), *arguments], cwd=tmp_path, env=environment,
                              text=True, capture_output=True,
                              check=False)
        calls = ([json.loads(line) for line in (tmp_path / "calls.txt").read_text().splitlines()]
                 if (tmp_path / "calls.txt").exists() else [])
        return done, calls

    return run


def test_it_trains_hot_and_under_each_strategy_and_lists_those_that_do_not_fit(demo):
    done, calls = demo("--steps", "5", TOO_LARGE="4,1,1;1,1,4")
    assert done.returncode == 0, done.stderr
    assert [c[0] for c in calls] == ["data", "profile"] + ["train"] * 8 + ["report"]
    assert calls[1][1:3] == ["--ranks", "4"] and 'run.profile="runs/demo/profile.json"' in calls[2]
    assert calls[-1][1:3] == ["runs/demo/planned", "runs/demo/hot"]
    steps = [c[c.index("--steps") + 1] for c in calls[2:-1]]
    assert steps == ["5", "5"] + ["3"] * 6
    assert [line for line in done.stderr.splitlines()
            if "plan: " in line] == [f"planned: plan: {word}" for word in ("chosen", "instead", "limited")]
    lines = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "does not fit the memory budget" in lines["4,1,1"] and "does not fit the memory budget" in lines["1,1,4"]
    assert lines["hot"].split()[1:] == ["2000", "3", "MiB", "2", "MB", "0", "MB", "50", "ms", "10.00%", "1.0%", "20%"]
    assert "loss 9.0000 -> 1.8000, 2000 tokens/s" in done.stdout
    assert lines["planned"].split()[1:] == lines["hot"].split()[1:]
    assert "Losses of all strategies agree to 0.0e+00 relative." in done.stdout
    assert (done.stdout.splitlines()[-1].startswith("Report: ")
            and "runs/demo/report.html" in done.stdout.splitlines()[-1])


def test_runs_that_are_done_are_not_repeated_until_the_job_changes(demo, tmp_path):
    demo("--steps", "2", TOO_LARGE="4,1,1")
    done, calls = demo("--steps", "2", TOO_LARGE="4,1,1")
    assert done.returncode == 0
    assert [c[0] for c in calls[11:]] == ["data", "report"]
    assert "profile: done before" in done.stderr and "planned: done before" in done.stderr
    assert "hot: done before" in done.stderr and "4,1,1: done before" in done.stderr
    (tmp_path / "demo/job.toml").write_text("seed = 2\n")
    assert len(demo("--steps", "2")[1]) == 13 + 10, "data, runs and report, but no profile"


def test_losses_that_differ_are_an_error(demo):
    done, _ = demo("--steps", "3", DIFFERS="2,1,2")
    assert done.returncode == 1
    assert "demo: the losses differ by 1.0e-03 relative, more than 1e-04." in done.stderr


def test_a_run_that_fails_is_reported_with_its_message(demo):
    done, _ = demo("--steps", "3", BREAKS="2,2,1")
    assert done.returncode == 1
    assert "demo: 2,2,1 ended with status 1: switchyard: data/python/corpus.bin is cut off." in done.stderr


def test_a_hot_job_that_does_not_fit_and_bad_arguments_are_refused(demo, tmp_path):
    assert "the hot job does not fit run.memory_budget" in demo("--steps", "3", TOO_LARGE="hot")[0].stderr
    assert "STEPS = 0: give at least 1." in demo("--steps", "0")[0].stderr
    (tmp_path / "program").unlink()
    assert "does not exist. Build it first: make build" in demo("--steps", "1")[0].stderr
