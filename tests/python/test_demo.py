"""tools/demo.py with a program that only pretends to plan and to train."""

import json
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "tools" / "demo.py"

# Seconds of a step: plan 1, single 2, uniform 1.9 (simulated), default 3; without emulation all alike.
PROGRAM = '''\
#!{python}
import json, os, sys
from pathlib import Path
args = sys.argv[1:]
with open("calls.txt", "a") as calls:
    print(json.dumps(args), file=calls)
if args[0] == os.environ.get("BREAKS"):
    sys.exit(f"switchyard: no {{args[0]}}")
value = lambda option: args[args.index(option) + 1]
if args[0] == "data":
    Path(value("--out")).mkdir(parents=True, exist_ok=True)
elif args[0] in ("profile", "report"):
    Path(value("--out")).write_text(args[0])
elif args[0] == "plan":
    kind = "single" if "--buckets" in args else "plan"
    Path(value("--out")).write_text(f'# {{kind}}\\npacking = "balanced", ring_degree = "document"\\n'
                                        'ring = 1, ring_degree = "document"\\n')
    print("Step 1 s;\\n  limited by computing\\nhosts\\n\\n   step\\nchosen   1 s\\n  to 9: a\\n  to 4: b\\n  keys")
    print("best single strategy   2 s\\n  to 9: c")
    print("best of 3\\n  x")
elif args[0] == "simulate":
    text = Path(args[1]).read_text()
    stream = "stream" in text
    seconds = 1.0 if "# plan" in text else 3.0 if stream else 1.9 if "uniform" in text else 2.0
    fits = not (stream and os.environ.get("NO_DEFAULT"))
    print("words\\n" + json.dumps(dict(step_seconds=seconds, fits=fits, seconds_of_steps=[9.0, seconds, seconds],
                                       compute_seconds=0.8, communication_seconds=seconds - 0.7,
                                       overlap_seconds=0.1, idle_seconds=0.0, peak_bytes=[1 << 20, 2 << 20])))
    sys.exit(0 if fits else 2)
else:
    text, out, steps = Path(args[1]).read_text(), Path(value("--out")), int(value("--steps"))
    emulated = "--emulate" in args
    kind = "plan" if "# plan" in text else "default" if "stream" in text else "single"
    seconds = 5.0 if not emulated else dict(plan=1.0, single=2.0, default=3.0)[kind]
    out.mkdir(parents=True, exist_ok=True)
    off = 1.001 if kind == os.environ.get("DIFFERS") else 1
    with open(out / "log.jsonl", "w") as log:
        for step in range(1, steps + 1):
            print("step", step, file=sys.stderr)
            print(json.dumps(dict(step=step, loss=9.0 * off / step, tokens=1000, seconds=99 if step == 1 else seconds,
                                  peak_bytes_per_rank=[1 << 20, 3 << 20], padding_share=0.01)), file=log)
'''


@pytest.fixture
def demo(tmp_path):
    """Runs the demo in an empty folder; environment variables control what the program does."""
    program = tmp_path / "program"
    program.write_text(textwrap.dedent(PROGRAM).format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "demo").mkdir()
    for name in ("cluster.toml", "definitions.py"):
        shutil.copy(ROOT / "demo" / name, tmp_path / "demo" / name)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/definitions.jsonl").write_text("")

    def run(*arguments, **environment):
        done = subprocess.run([sys.executable, DEMO, str(program), *arguments], cwd=tmp_path, env=environment,
                              text=True, capture_output=True, check=False)
        calls = ([json.loads(line) for line in (tmp_path / "calls.txt").read_text().splitlines()]
                 if (tmp_path / "calls.txt").exists() else [])
        return done, calls

    return run


def test_the_plan_is_compared_with_the_best_single_strategy_and_the_usual_default_in_turns(demo, tmp_path):
    done, calls = demo("--steps", "3")
    assert done.returncode == 0, done.stderr
    assert [c[0] for c in calls] == (["data"] * 2 + ["profile"] + ["plan"] * 2 + ["simulate"] * 4 + ["train"] * 8 +
                                     ["report"])
    assert calls[2][1:3] == ["--emulate", "2x4:200Mbit/s,800Mbit/s,72MiB"]
    trained = [(c[1].split("/")[-1], "--emulate" in c) for c in calls if c[0] == "train"]
    assert trained == ([("plan.toml", True), ("uniform.toml", True), ("stream.toml", True)] * 2 +
                       [("plan.toml", False), ("uniform.toml", False)]), "the quicker of both single strategies"
    assert ('packing = "stream", ring_degree = "uniform"\nring = 1, ring_degree = "document"\n' in
            (tmp_path / "runs/demo/stream.toml").read_text())
    out = done.stdout.splitlines()
    assert out[:4] == ["The plan: to 9: a; to 4: b",
                       "Why: the plan takes 1.00 s a step in simulation, the best single strategy (to 9: a; to 4: b) "
                       "1.90 s, the usual default 3.00 s. It saves 47% of the best single strategy's step, which was "
                       "exposed communication.",
                       "Memory: at most 2 MiB of the 72MiB of a device.", ""]
    lines = {line.split("  ")[0]: line.split() for line in out}
    assert lines["the plan"][2:] == ["1000", "0.0%", "3", "MiB", "1.00", "s", "1.00", "s", "20%", "1.0%"]
    assert lines["the usual default"][3:] == ["333", "0.0%", "3", "MiB", "3.00", "s", "3.00", "s", "73%", "1.0%"]
    assert ("The plan is 2.00 times as fast as the best single strategy and 3.00 times as fast as the usual default. "
            "It saves 47% of the best single strategy's step, which was exposed communication.") in out
    assert any(line.startswith("On this machine itself, without emulation, the plan gains nothing") for line in out)
    assert "Losses of all runs agree to 0.0e+00 relative." in out
    assert calls[-1][1:4] == ["runs/demo/plan-1", "runs/demo/single-1", "runs/demo/default-1"]
    assert out[-1].startswith("Report: ") and "runs/demo/report.html" in out[-1]


def test_the_machine_is_profiled_once(demo, tmp_path):
    demo("--steps", "2")
    done, calls = demo("--steps", "2")
    assert "profile: done before" in done.stderr
    assert [c[0] for c in calls].count("profile") == 1
    job = tmp_path / "demo/cluster.toml"
    job.write_text(job.read_text().replace("72MiB", "96MiB"))
    assert [c[0] for c in demo("--steps", "2")[1]].count("profile") == 2


def test_a_default_that_does_not_fit_is_left_out_and_said_so(demo):
    done, calls = demo("--steps", "2", NO_DEFAULT="1")
    assert "the usual default does not fit the memory: it is left out" in done.stderr
    assert done.returncode == 0 and [c[0] for c in calls].count("train") == 6
    assert "times as fast as the best single strategy. " in done.stdout


def test_losses_that_differ_are_an_error(demo):
    done, _ = demo("--steps", "3", DIFFERS="single")
    assert done.returncode == 1
    assert "demo: the losses differ by 1.0e-03 relative, more than 1e-04." in done.stderr


def test_a_command_that_fails_is_reported_with_its_message(demo, tmp_path):
    done, _ = demo("--steps", "3", BREAKS="train")
    assert done.returncode == 1
    assert "demo: plan, 1 of 2 ended with status 1: switchyard: no train" in done.stderr
    done, _ = demo("--steps", "3", BREAKS="plan")
    assert "switchyard: no plan" in done.stderr
    assert "demo: planning failed with status 1; see the message above." in done.stderr
    assert "STEPS = 1: give at least 2, as the first step is not counted." in demo("--steps", "1")[0].stderr
    (tmp_path / "program").unlink()
    assert "does not exist. Build it first: make build" in demo("--steps", "3")[0].stderr


def test_definitions_are_functions_classes_and_tables_of_some_length(tmp_path):
    long = "x" * 250
    (tmp_path / "a.py").write_text(f'import os\n\ndef one():\n    return "{long}"\n\nSHORT = 1\nTABLE = ["{long}"]\n')
    (tmp_path / "b.py").write_text("def broken(:\n")
    (tmp_path / "c.py").write_bytes(b'NAME = "\xff"\n')
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/d.py").write_text(f'OTHER = "{long}"\n')
    out = tmp_path / "out.jsonl"
    done = subprocess.run([sys.executable, ROOT / "demo/definitions.py", tmp_path, out], text=True,
                          capture_output=True, check=True)
    assert done.stdout == "2 documents\n"
    texts = [json.loads(line)["text"] for line in out.read_text().splitlines()]
    assert texts[0].startswith("def one():\n") and texts[1].startswith("TABLE = [")
    assert "usage" in subprocess.run([sys.executable, ROOT / "demo/definitions.py"], text=True, capture_output=True,
                                     check=False).stderr
