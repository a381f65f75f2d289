"""The demo: compares a job that switches strategies inside each step with every static strategy on the same data.

It profiles the machine, then trains demo/job.toml with strategies planned for this profile (runs/demo/planned), with
its own strategies (runs/demo/hot) and, for a few steps, with each static strategy. It checks that all losses agree,
prints a table and makes the report page. Finished runs of the same program, job and corpus are reused. Exit status 1:
losses differ, or a run failed.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

JOB = Path("demo/job.toml")
CORPUS = Path("data/python")
RUNS = Path("runs/demo")
STATIC = ("4,1,1", "2,2,1", "2,1,2", "1,4,1", "1,2,2", "1,1,4")  # dp,tp,pp on four ranks
OPEN = 'bucket=[{max_length=4096, strategy="auto"}]'  # the planner chooses the strategies
RANKS = 4
COMPARED_STEPS = 3
TOLERANCE = 1e-4  # relative; the order of fp32 sums depends on the strategy
QUIET_SECONDS = 15  # between lines about a running step if there is no terminal
OVER_BUDGET = "memory budget"  # part of the message when a rank needs more than run.memory_budget


class DemoError(Exception):
    pass


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


def prepare_corpus(program):
    source = sysconfig.get_paths()["stdlib"]
    command = [program, "data", "prepare", "--input", source, "--suffix", ".py", "--tokenizer",
               "train:8192", "--out", str(CORPUS)]
    if subprocess.run(command, check=False).returncode != 0:
        raise DemoError(f"the corpus could not be prepared from {source}; see the message above.")


def profile(program):
    """The machine's profile for the job's ranks, measured once per build of the program."""
    path, stamp = RUNS / "profile.json", RUNS / "profile.stamp"
    key = hashlib.sha256(Path(program).read_bytes()).hexdigest()
    if path.exists() and stamp.exists() and stamp.read_text() == key:
        print(f"profile: done before, in {path}", file=sys.stderr)
        return path
    RUNS.mkdir(parents=True, exist_ok=True)
    if subprocess.run([program, "profile", "--ranks", str(RANKS), "--out", str(path)], check=False).returncode != 0:
        raise DemoError("the machine could not be profiled; see the message above.")
    stamp.write_text(key)
    return path


def key_of(program, arguments):
    """A hash of everything that a run's result depends on."""
    state = hashlib.sha256()
    for path in (Path(program), JOB, CORPUS / "meta.json"):
        state.update(hashlib.sha256(path.read_bytes()).digest())
    state.update(json.dumps(arguments).encode())
    return state.hexdigest()


def stamp_of(folder):
    try:
        return json.loads((folder / "stamp.json").read_text())
    except (OSError, ValueError):
        return {}


def train(program, title, folder, arguments):
    """Trains unless that was done before. Returns the records of its steps; None if a rank's memory was too small."""
    key = key_of(program, arguments)
    stamp = stamp_of(folder)
    if stamp.get("key") != key:
        shutil.rmtree(folder, ignore_errors=True)
        fits = run(program, title, folder, arguments)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stamp.json").write_text(json.dumps({"key": key, "fits": fits}) + "\n")
    else:
        print(f"{title}: done before, in {folder}", file=sys.stderr)
        fits = stamp["fits"]
    return read_log(folder) if fits else None


def run(program, title, folder, arguments):
    """True if training ended normally, False if it exceeded the memory budget."""
    progress, said = Progress(title), []
    command = [program, "train", str(JOB), "--out", str(folder), "--set=run.save_last=false", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            progress.line(line.rstrip())
            if not line.startswith("step "):
                said.append(line)
    progress.close()
    if process.returncode == 0:
        return True
    if any(OVER_BUDGET in line for line in said):
        return False
    raise DemoError(f"{title} ended with status {process.returncode}: {''.join(said).strip()}")


def read_log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def largest_difference(records, reference):
    return max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(records, reference, strict=True))


def row(name, records):
    """Cells of the table: means over steps, and the peak over steps and ranks."""
    seconds = sum(r["seconds"] for r in records)

    def mean(field):
        return sum(r[field] for r in records) / len(records)

    return [
        name,
        f"{sum(r['tokens'] for r in records) / seconds:.0f}",
        f"{max(max(r['peak_bytes_per_rank']) for r in records) / 2**20:.0f} MiB",
        f"{mean('intra_bytes') / 1e6:.0f} MB",
        f"{mean('inter_bytes') / 1e6:.0f} MB",
        f"{1e3 * mean('switch_seconds'):.0f} ms",
        f"{100 * sum(r['switch_seconds'] for r in records) / seconds:.2f}%",
        f"{100 * mean('padding_share'):.1f}%",
        f"{100 * mean('bubble_share'):.0f}%",
    ]


def table(rows):
    head = ["strategy", "tokens/s", "peak memory", "intra/step", "inter/step", "switch", "share", "padding", "bubble"]
    rows = [line + [""] * (len(head) - len(line)) for line in rows]
    widths = [max(len(line[i]) for line in [head, *(r for r in rows if r[2])]) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) if i == 0 or not line[2] else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(line, widths)))
        .rstrip()
        for line in [head, *rows]
    )


def demo(program, steps):
    prepare_corpus(program)
    open_job = ["--steps", str(steps), "--set", OPEN, "--set", f'run.profile="{profile(program)}"']
    planned = train(program, "planned", RUNS / "planned", open_job)
    hot = train(program, "hot", RUNS / "hot", ["--steps", str(steps)])
    if hot is None:
        raise DemoError("the hot job does not fit run.memory_budget. Raise it in demo/job.toml.")
    compared = min(COMPARED_STEPS, steps)
    rows, worst = [row("planned", planned[:compared]) if planned else ["planned",
                                                                       "does not fit the memory budget"]], 0.0
    rows.append(row("hot", hot[:compared]))
    if planned:
        worst = largest_difference(planned, hot)
    for strategy in STATIC:
        bucket = f'bucket=[{{max_length=4096, strategy="{strategy}"}}]'
        folder = RUNS / ("static-" + strategy.replace(",", "-"))
        records = train(program, strategy, folder, ["--steps", str(compared), "--set", bucket])
        if records is None:
            rows.append([strategy, "does not fit the memory budget"])
            continue
        rows.append(row(strategy, records))
        worst = max(worst, largest_difference(records, hot[:compared]))
    print(f"\nSteps 1 to {compared}, peak memory of the rank with the highest peak, strategies as "
          f"dp,tp,pp:\n\n{table(rows)}\n")
    print(f"hot, steps 1 to {len(hot)}: loss {hot[0]['loss']:.4f} -> {hot[-1]['loss']:.4f}, "
          f"{sum(r['tokens'] for r in hot) / sum(r['seconds'] for r in hot):.0f} tokens/s")
    if worst > TOLERANCE:
        raise DemoError(f"the losses differ by {worst:.1e} relative, more than {TOLERANCE:.0e}.")
    print(f"Losses of all strategies agree to {worst:.1e} relative.")
    report(program, [folder for folder, records in ((RUNS / "planned", planned), (RUNS / "hot", hot)) if records])


def report(program, folders):
    page = RUNS / "report.html"
    command = [program, "report", *map(str, folders), "--cluster", str(RUNS / "profile.json"), "--out", str(page)]
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode != 0:
        raise DemoError("the report page could not be made; see the message above.")
    print(f"Report: {page.resolve()} (predicted and measured timelines, memory, loss, links; opens in any "
          "browser)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the switchyard binary")
    parser.add_argument("--steps", type=int, default=12, help="steps of the hot run")
    arguments = parser.parse_args()
    try:
        if arguments.steps < 1:
            raise DemoError(f"STEPS = {arguments.steps}: give at least 1.")
        if not Path(arguments.program).exists():
            raise DemoError(f"{arguments.program} does not exist. Build it first: make build")
        demo(arguments.program, arguments.steps)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; finished runs are kept.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
