"""The demo: what strategies for each range of lengths gain on a cluster, with the cluster emulated by this machine.

It measures the machine's cores, plans demo/cluster.toml for the emulated cluster, and trains the plan, the best single
strategy and the usual default (documents in stream order, padded, one uniform split) on the same documents, in turns.
Then it trains the plan and the best single strategy without emulation. It checks that all losses agree, prints a table
and makes the report page. Exit status 1: losses differ, or a command failed.
"""

import argparse
import hashlib
import itertools
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path

JOB = Path("demo/cluster.toml")
RUNS = Path("runs/demo")
CORPORA = Path("data")
PROFILE = RUNS / "emulated.json"
REPEATS = 2  # repeats of every run, in turns
DOES_NOT_FIT = 2  # exit status of simulate
TOLERANCE = 1e-4  # relative; the order of fp32 sums depends on the strategy
QUIET_SECONDS = 15  # between lines about a running step if there is no terminal


class DemoError(Exception):
    pass


@dataclass
class Contender:
    """A job to compare: its strategies, its simulation, and the log of each repeat, without the first step."""
    name: str
    title: str
    job: Path
    strategies: str
    simulated: dict
    logs: list = field(default_factory=list)
    first_losses: list = field(default_factory=list)

    def tokens_per_second(self):
        """Tokens per second of each repeat."""
        return [sum(r["tokens"] for r in log) / sum(r["seconds"] for r in log) for log in self.logs]

    def best(self):
        return max(self.tokens_per_second())


class Progress:
    """Shows the program's lines: in place on a terminal, otherwise only some of them."""

    def __init__(self, title):
        self.title, self.shown, self.open = title, 0.0, False

    def line(self, text):
        if sys.stderr.isatty():
            print(f"\r\033[K{self.title}: {text}", end="", file=sys.stderr, flush=True)
            self.open = True
        elif "running" not in text or time.monotonic() - self.shown > QUIET_SECONDS:
            print(f"{self.title}: {text}", file=sys.stderr, flush=True)
            self.shown = time.monotonic()

    def close(self):
        if self.open:
            print(file=sys.stderr)


def called(what, command, show=False):
    """Standard output of a command of the program; show: its standard error is shown line by line."""
    if not show:
        done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE)
        if done.returncode != 0:
            raise DemoError(f"{what} failed with status {done.returncode}; see the message above.")
        return done.stdout
    progress, said = Progress(what), []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            progress.line(line.rstrip())
            if not line.startswith("step "):
                said.append(line)
    progress.close()
    if process.returncode != 0:
        raise DemoError(f"{what} ended with status {process.returncode}: {''.join(said).strip()}")
    return ""


def prepare_corpus(program, what, source, name, *options):
    """Also in place of one that another Python, or another place of this folder, has left there."""
    try:
        inputs = json.loads((CORPORA / name / "meta.json").read_text())["options"]["input"]
    except (OSError, ValueError, KeyError, TypeError):
        inputs = [source]
    called(what, [program, "data", "prepare", "--tokenizer", "train:8192", "--input", source, *options, "--out",
                  str(CORPORA / name), *(["--force"] if inputs != [source] else [])])


def prepare_corpora(program):
    source = sysconfig.get_paths()["stdlib"]
    prepare_corpus(program, "preparing source files", source, "python", "--suffix", ".py")
    CORPORA.mkdir(exist_ok=True)
    documents = CORPORA / "definitions.jsonl"
    if not documents.exists():
        part = documents.with_suffix(".part")
        called("splitting source files", [sys.executable, "demo/definitions.py", source, str(part)])
        part.rename(documents)
    prepare_corpus(program, "preparing definitions", str(documents), "definitions")


def profile(program):
    """The cores of this machine as devices of the emulated cluster, measured once per build of the program."""
    stamp = RUNS / "emulated.stamp"
    key = hashlib.sha256(Path(program).read_bytes() + JOB.read_bytes()).hexdigest()
    if PROFILE.exists() and stamp.exists() and stamp.read_text() == key:
        print(f"profile: done before, in {PROFILE}", file=sys.stderr)
        return
    RUNS.mkdir(parents=True, exist_ok=True)
    cluster = emulated_cluster()
    called("the profile", [program, "profile", "--emulate", cluster, "--head-dim", "24", "--out", str(PROFILE)])
    stamp.write_text(key)


def emulated_cluster():
    return next(line.split('"')[1] for line in JOB.read_text().splitlines() if line.startswith("emulate"))


def simulated(program, job, profile, steps):
    """What `simulate` says; a job that doesn't fit the memory is an answer, too."""
    command = [program, "simulate", str(job), "--cluster", str(profile), "--steps", str(steps), "--json"]
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE)
    if done.returncode not in (0, DOES_NOT_FIT):
        raise DemoError(f"simulating {job} failed with status {done.returncode}; see the message above.")
    return json.loads(done.stdout.splitlines()[-1])


def planned(program, job, profile, out, steps, *options):
    """Plans the job into the file `out`; returns the strategies that were chosen: "to 4096: dp=4; to 1024: dp=8"."""
    lines = called("planning", [program, "plan", str(job), "--cluster", str(profile), "--steps", str(steps), "--out",
                                str(out), *options]).splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("chosen")), len(lines)) + 1
    of_plan = itertools.takewhile(lambda line: line.startswith(" "), lines[first:])  # they belong to the line above
    return "; ".join(line.strip() for line in of_plan if line.strip().startswith("to "))


def with_one_degree(job):
    """The text of a planned job whose rings cut all documents into equally many parts."""
    return re.sub(r'(?m)^(?!.*\bring = 1\b)(.*)ring_degree = "document"', r'\1ring_degree = "uniform"', job)


def contenders(program, job, profile, folder, steps):
    """The plan, the best single strategy, and the usual default under the same split, as jobs in the folder."""
    plan, single, uniform, stream = (folder / f"{name}.toml" for name in ("plan", "single", "uniform", "stream"))
    chosen = planned(program, job, profile, plan, steps)
    chosen_single = planned(program, job, profile, single, steps, "--buckets", "1")
    text = with_one_degree(single.read_text())
    uniform.write_text(text)
    stream.write_text(text.replace('packing = "balanced"', 'packing = "stream"'))
    results = {path: simulated(program, path, profile, steps) for path in (plan, single, uniform, stream)}
    quicker = min((single, uniform), key=lambda path: results[path]["step_seconds"])
    found = [Contender("plan", "the plan", plan, chosen, results[plan]),
             Contender("single", "the best single strategy", quicker, chosen_single, results[quicker])]
    if results[stream]["fits"]:
        found.append(Contender("default", "the usual default", stream, chosen_single, results[stream]))
    else:
        print("the usual default does not fit the memory: it is left out", file=sys.stderr)
    return found


def print_choice(found):
    """What was planned, why, and what memory that takes, in three lines."""
    plan, single, *default = found
    seconds = [f"{one.simulated['step_seconds']:.2f} s" for one in found]
    also = "".join(f", {one.title} {time}" for one, time in zip(default, seconds[2:]))
    print(f"The plan: {plan.strategies}\n"
          f"Why: the plan takes {seconds[0]} a step in simulation, {single.title} ({single.strategies}) {seconds[1]}"
          f"{also}. {reason(plan, single)}.\n"
          f"Memory: at most {max(plan.simulated['peak_bytes']) / 2**20:.0f} MiB of the "
          f"{emulated_cluster().split(',')[-1]} of a device.\n", flush=True)


def train(program, title, folder, job, steps, *options):
    """Records of the steps after the first, and the loss of the first."""
    shutil.rmtree(folder, ignore_errors=True)
    called(title, [program, "train", str(job), "--out", str(folder), "--steps", str(steps), *options], show=True)
    records = read_log(folder)
    return records[1:], records[0]["loss"]


def read_log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def seconds_of(simulation):
    """What a step's time goes to: computing, exposed communication, idle time; per rank."""
    exposed = simulation["communication_seconds"] - simulation["overlap_seconds"]
    return {"computing": simulation["compute_seconds"], "exposed communication": exposed,
            "idle time": simulation["idle_seconds"]}


def reason(plan, other):
    """What the plan spends less time on than another job: the two largest parts, as shares of that job's step."""
    here, there = seconds_of(plan.simulated), seconds_of(other.simulated)
    saved = sorted(((there[what] - here[what], what) for what in here), reverse=True)
    step = other.simulated["step_seconds"]
    parts = [(seconds, what) for seconds, what in saved if seconds > 0.01 * step][:2]
    if not parts:
        return "Both spend their time alike"
    (largest, what), *more = parts
    also = "".join(f", and {100 * seconds / step:.0f}%, which was {name}" for seconds, name in more)
    return f"It saves {100 * largest / step:.0f}% of the best single strategy's step, which was {what}{also}"


def table(rows):
    """Rows of cells, the head first; one with fewer cells than the head says something in words instead."""
    widths = [max(len(row[i]) for row in rows if len(row) == len(rows[0])) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) if i == 0 or len(row) < len(widths) else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths))).rstrip() for row in rows)


def row(contender):
    rates, logs = contender.tokens_per_second(), contender.logs[0]
    simulated = contender.simulated["seconds_of_steps"][1:]  # the same steps
    exposed = seconds_of(contender.simulated)["exposed communication"]
    return [contender.title, f"{max(rates):.0f}", f"{100 * (max(rates) / min(rates) - 1):.1f}%",
            f"{max(max(r['peak_bytes_per_rank']) for r in logs) / 2**20:.0f} MiB",
            f"{sum(r['seconds'] for r in logs) / len(logs):.2f} s", f"{sum(simulated) / len(simulated):.2f} s",
            f"{100 * exposed / contender.simulated['step_seconds']:.0f}%",
            f"{100 * sum(r['padding_share'] for r in logs) / len(logs):.1f}%"]


def largest_difference(all_losses):
    """Largest relative difference between losses of a step in any two runs."""
    return max((max(losses) - min(losses)) / min(losses) for losses in zip(*all_losses))


def train_in_turns(program, found, profile, folder, steps, repeats):
    """Trains the contenders on the emulated cluster. Returns the largest relative difference between their losses."""
    for repeat in range(1, repeats + 1):
        for one in found:
            records, first = train(program, f"{one.name}, {repeat} of {repeats}", folder / f"{one.name}-{repeat}",
                                   one.job, steps, "--emulate", str(profile))
            one.logs.append(records)
            one.first_losses.append(first)
    return largest_difference([[first, *(r["loss"] for r in log)]
                               for one in found for first, log in zip(one.first_losses, one.logs)])


def compare(found, steps):
    head = ["emulated", "tokens/s", "spread", "peak memory", "step", "simulated", "exposed", "padding"]
    print(f"\nSteps 2 to {steps}, {REPEATS} repeats of each in turn, on the emulated cluster:\n\n"
          f"{table([head, *map(row, found)])}\n")
    plan, single = found[0], found[1]
    sentence = f"The plan is {plan.best() / single.best():.2f} times as fast as the best single strategy"
    if len(found) > 2:
        sentence += f" and {plan.best() / found[2].best():.2f} times as fast as the usual default"
    print(f"{sentence}. {reason(plan, single)}.")


def compare_here(program, found, steps):
    """The same on this machine as it is: ranks share its cores, and links are memory."""
    rates = []
    for one in found[:2]:
        records, _ = train(program, f"{one.name}, not emulated", RUNS / f"{one.name}-here", one.job, steps, "--set",
                           'run.emulate=""')
        rates.append(sum(r["tokens"] for r in records) / sum(r["seconds"] for r in records))
    ratio = rates[0] / rates[1]
    verdict = (f"gains {100 * (ratio - 1):.0f}% over" if ratio > 1.01 else
               f"loses {100 * (1 - ratio):.0f}% against" if ratio < 0.99 else "gains nothing over")
    print(f"On this machine itself, without emulation, the plan {verdict} the best single strategy "
          f"({rates[0]:.0f} and {rates[1]:.0f} tokens/s): its ranks share cores and have no slow links.")


def demo(program, steps):
    prepare_corpora(program)
    profile(program)
    found = contenders(program, JOB, PROFILE, RUNS, steps)
    print_choice(found)
    worst = train_in_turns(program, found, PROFILE, RUNS, steps, REPEATS)
    compare(found, steps)
    compare_here(program, found, steps)
    if worst > TOLERANCE:
        raise DemoError(f"the losses differ by {worst:.1e} relative, more than {TOLERANCE:.0e}.")
    print(f"Losses of all runs agree to {worst:.1e} relative.")
    page = RUNS / "report.html"
    called("the report", [program, "report", *(str(RUNS / f"{one.name}-1") for one in found), "--cluster",
                          str(PROFILE), "--out", str(page)])
    print(f"Report: {page.resolve()} (timelines, memory, loss, links of all of them; opens in any browser)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the switchyard binary")
    parser.add_argument("--steps", type=int, default=3, help="steps of each run")
    arguments = parser.parse_args()
    try:
        if arguments.steps < 2:
            raise DemoError(f"STEPS = {arguments.steps}: give at least 2, as the first step is not counted.")
        if not Path(arguments.program).exists():
            raise DemoError(f"{arguments.program} does not exist. Build it first: make build")
        demo(arguments.program, arguments.steps)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
