"""Shared by the system tests: token files, job files, and runs of the program."""

import contextlib
import fcntl
import json
import os
import pty
import random
import re
import secrets
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from fork_server import ForkServer

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("SWITCHYARD_PROGRAM", str(ROOT / "build" / "switchyard"))
SLOW_DISK = os.environ.get("SWITCHYARD_SLOW_DISK", str(ROOT / "build/tests/system/libslow_disk.so"))
REFERENCE = os.environ.get("SWITCHYARD_REFERENCE", str(ROOT / "build" / "reference" / "reference"))
ON_STANDIN = os.environ.get("SWITCHYARD_ON_STANDIN", str(ROOT / "build/switchyard-on-standin"))
PYTHON = sys.executable

VOCAB = 120
MODEL = {"hidden_size": 32, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_size": 48, "vocab_size": VOCAB}
LONGEST = 48
HANG = 900  # seconds after which a command hangs; the longest takes less than a minute where it has a core
MPI = os.environ.get("SWITCHYARD_MPI", "1") == "1"  # whether the program was built with it
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--allow-run-as-root"]

# Runs must not inherit launch variables from the shell that started the test. How far work has come is printed where it
# takes long, which no test may depend on. Threads that wait leave the cores to other tests.
_LAUNCH = re.compile("RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|(SLURM|PMIX?)_.*")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not _LAUNCH.fullmatch(name)} | {
    "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "SWITCHYARD_PROGRESS": "off"}
_CLIENT = os.environ.get("FORK_CLIENT", str(ROOT / "build/tests/system/fork_client"))
_SERVERS = [ForkServer(PROGRAM, os.environ.get("FORK_SERVER", str(ROOT / "build/fork_server")), _CLIENT, ENVIRONMENT),
            ForkServer(ON_STANDIN, os.environ.get("FORK_SERVER_ON_STANDIN", str(ROOT / "build/fork_server_on_standin")),
                       _CLIENT, ENVIRONMENT)]


def quick(words, environment):
    """A command that does the same as `words` and may start sooner. Its process is not the program's: signals reach
    the program a little later."""
    for server in _SERVERS:
        words = server.words(words, environment)
    return words


def random_documents(seed, count, longest=LONGEST, vocab=VOCAB):
    draw = random.Random(seed)
    return [[draw.randrange(vocab) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def write_corpus(folder, documents):
    """Writes corpus.bin and corpus.idx (docs/file-formats.md): u16 tokens, one sequence per document."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [len(document) for document in documents]
    starts = [2 * sum(sizes[:i]) for i in range(len(sizes))]
    (folder / "corpus.bin").write_bytes(b"".join(struct.pack(f"<{len(d)}H", *d) for d in documents))
    count = len(documents)
    (folder / "corpus.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1) +
                                        struct.pack(f"<{count}i", *sizes) +
                                        struct.pack(f"<{count}q", *starts) +
                                        struct.pack(f"<{count + 1}q", *range(count + 1)))
    return folder


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def write_job(path, corpus, buckets, model=MODEL, seed=1, **sections):
    """buckets: (max_length, strategy), the longest first; strategy: "dp,tp,pp", a dict of settings, or a JSON file."""
    job = {"model": model, "data": {"path": str(corpus)}, "batch": {"sequences": 8, "context": LONGEST},
           "optimizer": {"lr": 1e-2, "schedule": "constant"},
           "run": {"steps": 5, "precision": "fp64", "threads": 1, "keep_checkpoints": 0}}
    for section, keys in sections.items():
        job[section] = job.get(section, {}) | keys
    lines = [f"seed = {seed}"]
    for section, keys in job.items():
        lines += [f"[{section}]"] + [f"{key} = {toml(value)}" for key, value in keys.items()]
    for length, strategy in buckets:
        key, value = ("file", str(strategy)) if isinstance(strategy, Path) else ("strategy", strategy)
        lines += ["[[bucket]]", f"max_length = {length}", f"{key} = {toml(value)}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def command(job, *arguments, program=PROGRAM):
    return [program, "train", str(job), *map(str, arguments)]


def run(words, timeout=HANG, environment=ENVIRONMENT, **options):
    if options.keys() <= {"cwd", "input"}:
        words = quick(words, environment)
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout,
                          env=environment, **options)


def train(job, *arguments, launcher=(), program=PROGRAM, **options):
    """Trains, which must succeed. Returns the lines of log.jsonl in --out."""
    result = run([*launcher, *command(job, *arguments, program=program)], **options)
    assert result.returncode == 0, result.stderr
    return read_log(arguments[arguments.index("--out") + 1])


class OnTerminal:
    """A program whose standard error is a terminal. columns: its width; 0: the terminal doesn't tell it."""

    def __init__(self, words, columns=0, cwd=None, **variables):
        self.ours, theirs = pty.openpty()
        self.resize(columns)
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=theirs,
                                        cwd=cwd, env=ENVIRONMENT | {"TERM": "xterm"} | variables)
        os.close(theirs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)

    def resize(self, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))

    def read(self):
        """What the program printed since the last call, at least a byte; empty: it has ended."""
        try:
            return os.read(self.ours, 4096).decode(errors="replace")
        except OSError:
            return ""


def on_terminal(words, **options):
    """The exit status, and what the program printed on a terminal as standard error."""
    with OnTerminal(words, **options) as terminal:
        said = "".join(iter(terminal.read, ""))
        return terminal.process.wait(timeout=HANG), said


def read_log(out):
    return [json.loads(line) for line in (Path(out) / "log.jsonl").read_text().splitlines()]


def events(out):
    """What TensorBoard shows: a value for each tag and step."""
    lines = [line.rsplit(" ", 3)
             for line in run([PYTHON, ROOT / "tests" / "files" / "read_events.py", out]).stdout.splitlines()]
    return {(tag, int(step)): float(value) for tag, step, value, _ in lines}


def free_port():
    """A port that is free, as is the next one, which ranks of torchrun use beside it: below those that the system gives
    to connections of whatever else runs."""
    while True:
        port = secrets.choice(range(20000, 32000, 2))
        with socket.socket() as first, socket.socket() as second, contextlib.suppress(OSError):
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 1))
            return port


def start_ranks(commands, hosts=None, port=None, variables=None, cwd=None, soon=False):
    """Starts one process per rank with the variables of torchrun.

    hosts: a host name for each rank (default: this machine's); variables: further ones for each rank; soon: where
    no signals are sent to them (quick)."""
    port = str(port or free_port())
    processes = []
    for rank, words in enumerate(commands):
        launch = {"RANK": str(rank), "WORLD_SIZE": str(len(commands)), "LOCAL_RANK": str(rank),
                  "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": port} | ({"SWITCHYARD_HOST": hosts[rank]} if hosts
                                          else {}) | (variables[rank] if variables else {})
        environment = ENVIRONMENT | launch
        processes.append(subprocess.Popen(quick(words, environment) if soon else words, env=environment, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd))
    return processes


def end_cleanly(ranks):
    """Waits for the processes, all of which must succeed and none be refused. If one fails, none is left running.
    Returns what each wrote to standard output."""
    said = []
    try:
        for process in ranks:
            output, error = process.communicate(timeout=HANG)
            assert process.returncode == 0, error
            assert "switchyard: " not in error, "nobody is refused"
            said.append(output)
    finally:
        for process in ranks:
            process.kill()
    return said


def train_in_processes(job, ranks, out):
    """Trains with a process for each rank, as torchrun starts them. Returns the lines of log.jsonl."""
    end_cleanly(start_ranks([command(job, "--out", out)] * ranks, soon=True))
    return read_log(out)


def wait_for_steps(process, count):
    """Returns when the process has printed so many steps."""
    seen = []
    for line in process.stderr:
        seen.append(line)
        count -= " loss " in line and "  running " not in line  # a step that lasts has the loss of the one before
        if count == 0:
            return
    raise AssertionError("".join(seen))


def has_checkpoint(out):
    """Whether the run has a complete one; it writes them beside its steps."""
    return any(out.glob("checkpoints/step-????????/COMMITTED"))


def wait_for_checkpoint(process, out):
    while not has_checkpoint(out):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def slow_disk(monkeypatch, milliseconds):
    """Each sync of the runs that follow takes so long."""
    monkeypatch.setitem(ENVIRONMENT, "LD_PRELOAD", SLOW_DISK)
    monkeypatch.setitem(ENVIRONMENT, "SLOW_DISK_MS", str(milliseconds))
