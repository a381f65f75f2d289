"""Compares hot switching with every static strategy, on hosts with slow links.

    python3 bench/hosts/run.py --cluster TOOL [--setting 100/800]... [--strategy hot]... [--steps 2]

Each run is the demo's job (demo/job.toml, with the corpus of `make demo`) under MPI, one process per rank; a static
strategy replaces all buckets. TOOL makes the hosts: `TOOL up --hosts 2 --slots 2 --inter 100mbit --intra 800mbit`,
`TOOL run -n 4 -- COMMAND`, `TOOL down`; it sets SWITCHYARD_HOST of every rank to the name of its host. A setting is
the rate between hosts / inside them, in Mbit/s.

Writes the table hosts.md, and hosts-INTER-INTRA.jsonl with the log lines of all steps, to --results. Exit status 1: a
run failed for another reason than its memory, or losses differ.
"""

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import demo  # noqa: E402  for its progress, table and check of the losses

JOB = "demo/job.toml"
STATIC = ("4,1,1", "2,2,1", "2,1,2", "1,4,1", "1,2,2", "1,1,4")  # dp,tp,pp on four ranks
OVER_BUDGET = "memory budget"  # part of the message when a rank needs more than run.memory_budget
COLUMNS = ["strategy", "tokens/s", "peak memory", "intra/step", "inter/step", "switch", "share", "padding", "bubble"]
HOSTS, SLOTS = 2, 2
NAME = "hosts_bench"
HEAD = """# Hot switching on hosts with slow links

{hosts} hosts of {slots} ranks, one process each under MPI; the model and corpus of the demo, steps 1 to {steps}. The
ranks of a host share one link to other hosts and have a link each inside the host. All ranks share the machine's
{cores} cores, so arithmetic takes longer than on real hosts.

Command: `{command}`
Machine: {machine}
Taken: {date}
"""


def parsed_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", required=True, help="tool that makes the hosts")
    parser.add_argument("--program", type=os.path.abspath, default=str(ROOT / "build/switchyard"))
    parser.add_argument("--setting", action="append", help="inter/intra in Mbit/s (default: 100/800 and 400/2000)")
    parser.add_argument("--strategy", action="append", help="hot, or dp,tp,pp (default: hot and all static ones)")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900, help="seconds that a run may take")
    parser.add_argument("--fabric-timeout", default="5 min", help="longest time that a rank waits for another one")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    return parser.parse_args()


def machine():
    def first(path, key):
        return next((line.split(":", 1)[1].strip() for line in Path(path).read_text().splitlines()
                     if line.startswith(key)), "unknown")

    gib = int(first("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    system = os.uname()
    return (f"{os.cpu_count()} cores ({first('/proc/cpuinfo', 'model name')}), {gib:.0f} GiB, "
            f"{system.sysname} {system.release}")


def tool(arguments, *words):
    done = subprocess.run([arguments.cluster, *words, "--name", NAME], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise demo.DemoError(f"{words[0]} of the hosts failed: {done.stderr.strip()}")


def train(arguments, setting, strategy, folder):
    """The records of the run's steps, or None if a rank's memory did not suffice."""
    job = [arguments.program, "train", JOB, "--out", str(folder), "--steps", str(arguments.steps)]
    job += ["--force", "--set=run.save_last=false", "--set", f"fabric.timeout={arguments.fabric_timeout}"]
    if strategy != "hot":
        job += ["--set", f'bucket=[{{max_length=4096, strategy="{strategy}"}}]']
    command = [arguments.cluster, "run", "--name", NAME, "-n", str(HOSTS * SLOTS), "--timeout", str(arguments.timeout)]
    command += ["--mca", "mpi_yield_when_idle", "1", "--", *job]
    progress, said = demo.Progress(f"{setting} {strategy}"), []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        for line in process.stderr:
            if line.startswith("step "):
                progress.line(line.rstrip())
            else:
                said.append(line)
    progress.close()
    if process.returncode == 0:
        return demo.read_log(folder)
    if any(OVER_BUDGET in line for line in said):
        return None
    raise demo.DemoError(f"{setting} {strategy} ended with status {process.returncode}: {''.join(said).strip()}")


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


def measure(arguments, setting, strategies):
    """The setting's section of the results; writes its log lines."""
    inter, intra = setting.split("/")
    tool(arguments, "up", "--hosts", str(HOSTS), "--slots", str(SLOTS), "--inter", f"{inter}mbit",
         "--intra", f"{intra}mbit")
    rows, logs = [COLUMNS], {}
    try:
        for strategy in strategies:
            with tempfile.TemporaryDirectory() as folder:
                records = train(arguments, setting, strategy, Path(folder))
            if records is None:
                rows.append([strategy, "does not fit the memory budget"])
                continue
            rows.append(row(strategy, records))
            logs[strategy] = records
    finally:
        tool(arguments, "down")
    rates = {"inter_mbit": float(inter), "intra_mbit": float(intra)}
    lines = [json.dumps({**rates, "strategy": name, **record}) for name, records in logs.items() for record in records]
    (arguments.results / f"hosts-{inter}-{intra}.jsonl").write_text("".join(line + "\n" for line in lines))
    if not logs:
        raise demo.DemoError(f"{setting}: no strategy fits the memory budget. Raise it in {JOB}.")
    worst = demo.largest_difference([[record["loss"] for record in records] for records in logs.values()])
    if worst > demo.TOLERANCE:
        raise demo.DemoError(f"{setting}: the losses differ by {worst:.1e} relative, more than {demo.TOLERANCE:.0e}.")
    table = demo.table(rows)
    print(f"\n{setting} Mbit/s:\n\n{table}\n")
    return (f"\n## {inter} Mbit/s between hosts, {intra} Mbit/s inside\n\n```\n{table}\n```\n\n"
            f"Losses agree to {worst:.1e} relative.\n")


def main():
    arguments = parsed_arguments()
    settings = arguments.setting or ["100/800", "400/2000"]
    strategies = arguments.strategy or ["hot", *STATIC]
    arguments.results.mkdir(parents=True, exist_ok=True)
    words = [Path(sys.executable).name, "bench/hosts/run.py", *sys.argv[1:]]
    words = ["TOOL" if word == arguments.cluster else word for word in words]
    text = HEAD.format(hosts=HOSTS, slots=SLOTS, steps=arguments.steps, cores=os.cpu_count(), command=shlex.join(words),
                       machine=machine(),
                       date=datetime.date.today().isoformat())
    try:
        for setting in settings:
            text += measure(arguments, setting, strategies)
        (arguments.results / "hosts.md").write_text(text)
    except demo.DemoError as error:
        print(f"hosts: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
