"""Sends the log of a run to Weights & Biases: `python -m switchyard_data.wandb_log RUN`.

It follows log.jsonl and validation.jsonl in the run's folder until its standard input ends, and then sends what is
left; for a run that has ended, `< /dev/null`. WANDB_MODE=offline keeps everything in RUN/wandb.
"""

import argparse
import json
import select
import sys
from pathlib import Path

SECONDS = 2  # between looks at the log
ID = "wandb-id"  # the run's name at Weights & Biases, by which a resumed run goes on
PER_RANK = "_per_rank"


class Lines:
    """The complete lines of a file that grows, each once."""

    def __init__(self, path):
        self.path, self.read = path, 0

    def new(self):
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.read)
            text = file.read()
        complete = text.rfind(b"\n") + 1
        self.read += complete
        return [json.loads(line) for line in text[:complete].splitlines()]


def figures(record, section):
    """A line's figures as wandb has them, by TensorBoard's names: "train/loss" and so on; of numbers per rank the
    largest, "train/emulated" 1 where times are emulated, and the step as "step"."""
    numbers = {key: value for key, value in record.items() if isinstance(value, (int, float))}
    step = numbers.pop("step")
    for key, value in record.items():
        if key.endswith(PER_RANK) and value:
            numbers[key[:-len(PER_RANK)]] = max(value)
    if "emulated" in record:
        numbers["emulated"] = 1
    return {"step": step, **{f"{section}/{key}": value for key, value in numbers.items()}}


def settings(folder):
    """The job as nested dictionaries, where this Python reads TOML."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        return {}
    return tomllib.loads((folder / "job.toml").read_text(encoding="utf-8"))


def follow(folder, first_step, send, ended):
    """Calls send with every line from first_step on, until ended() is true and nothing is left."""
    logs = {"train": Lines(folder / "log.jsonl"), "validation": Lines(folder / "validation.jsonl")}
    while True:
        last = ended()
        for section, lines in logs.items():
            for record in lines.new():
                if record["step"] >= first_step:
                    send(figures(record, section))
        if last:
            return


def input_ended():
    """Waits a little; whether standard input has ended."""
    ready, _, _ = select.select([sys.stdin], [], [], SECONDS)
    return bool(ready) and not sys.stdin.buffer.read1(1)


def say(text):
    """One write, so that the lines of the training beside it stay apart."""
    sys.stderr.write(f"log.wandb: {text}\n")


def main():
    parser = argparse.ArgumentParser(prog="python -m switchyard_data.wandb_log", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("--from", dest="first_step", type=int, default=1, metavar="STEP",
                        help="leave out earlier steps, which the run there has")
    options = parser.parse_args()
    try:
        import wandb
    except ModuleNotFoundError:
        say("the Python package wandb is missing, so it is left out. Install it with: pip install wandb")
        return 0
    known = options.folder / ID
    goes_on = known.exists() and options.first_step > 1
    try:
        run = wandb.init(project="switchyard", name=options.folder.resolve().name, dir=str(options.folder),
                         id=known.read_text().strip() if goes_on else None,
                         resume="allow", config=settings(options.folder))
    except Exception as error:  # no key, no network, an unknown WANDB_MODE: not all of them are wandb.Error
        say(f"{' '.join(str(error).split()).rstrip('.')}. It is left out.")
        return 0
    known.write_text(run.id + "\n")
    run.define_metric("*", step_metric="step")
    follow(options.folder, options.first_step if goes_on else 1, run.log, input_ended)
    run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
