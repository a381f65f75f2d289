"""Plans, simulations, runs and corpora of Switchyard.

    import switchyard
    found = switchyard.plan(model="7b", context=8192, cluster="a100-80g", ranks=16)
    found["step_seconds"], found["chosen"]

plan, simulate and switch_plan take the options of the commands as keywords (`a_b=1` is `--a-b 1`, True is the flag
alone, a list repeats the option) and return what the command prints with --json. They compute within this process, in
the library _native, print nothing, and let other threads go on. They raise Error with the command's message if it
fails.
"""

import importlib
import json
import os
import sys
from pathlib import Path

import numpy

_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}  # docs/file-formats.md


class Error(Exception):
    """The message of a command that failed."""


def program():
    """Path of the program: SWITCHYARD_PROGRAM, else that of the wheel, the prefix or the source folder of this
    module."""
    if told := os.environ.get("SWITCHYARD_PROGRAM"):
        return told
    here = Path(__file__).resolve().parent
    places = [here / "bin/switchyard", here.parents[1] / "build/switchyard"]
    if here.parent.name == "python":  # not an environment's own script, which would start this module again
        places.append(here.parents[1].parent.parent / "bin/switchyard")
    for place in places:
        if place.is_file():
            return str(place)
    raise Error(f"there is no program at {places[0]}. Install the wheel, or set SWITCHYARD_PROGRAM.")


def environment():
    """Environment of the program's processes: their Python half runs under this interpreter."""
    return {"SWITCHYARD_PYTHON": sys.executable} | os.environ


def _words(options):
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            yield option
        elif value is not None and value is not False:
            for item in value if isinstance(value, (list, tuple)) else [value]:
                yield from (option, str(item))


def _library():
    """The library _native: in a wheel and a prefix beside this file, for the source folder in the build folder."""
    name = __name__ + "._native"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
    folder = str(Path(program()).parent / "module")
    if folder not in __path__:
        __path__.append(folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise Error(f"there is no library _native for Python {sys.version_info[0]}.{sys.version_info[1]} in "
                    f"{' or '.join(__path__)}. Install the wheel, or build Switchyard with nanobind in .venv, "
                    "which `make build` installs, and Python's headers (python3-dev).") from missing


def _figures(command, job=None, **options):
    words = [*([] if job is None else [str(job)]), *_words(options)]
    return json.loads(_library().figures(command, [os.fsencode(word) for word in words]))


def plan(job=None, **options):
    """The best plan for a job file, or for the model and context that options name: `switchyard plan`."""
    return _figures("plan", job, **options)


def simulate(job=None, **options):
    """Time and memory of a job's steps: `switchyard simulate`. "fits" says whether the memory suffices."""
    return _figures("simulate", job, **options)


def switch_plan(from_, to, **options):
    """What a hot switch from one strategy to another sends: `switchyard switch-plan`."""
    return _figures("switch-plan", **{"from": from_, "to": to}, **options)


class Run:
    """The folder of a run. steps, validations: lists of dictionaries, one for each line of the logs."""

    def __init__(self, folder):
        self.folder = Path(folder)
        if not (self.folder / "job.toml").exists():
            raise Error(f"{folder} is no run folder: it has no job.toml.")
        self.steps = self._lines("log.jsonl")
        self.validations = self._lines("validation.jsonl")

    def _lines(self, name):
        path = self.folder / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half-written

    def column(self, name):
        """A figure of all steps, as an array; NaN where a step has none. Error if no step has it."""
        known = sorted({key for step in self.steps for key in step})
        if known and name not in known:
            raise Error(f'No step of {self.folder} has "{name}". Use one of {", ".join(known)}.')
        return numpy.array([numpy.nan if step.get(name) is None else step[name] for step in self.steps])


def _mapped(path, dtype):
    try:
        return numpy.memmap(path, dtype, "r")
    except (OSError, ValueError) as error:  # ValueError: an empty file, or a part of a token at its end
        reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        raise Error(f"{path} can't be read: {reason}. Name a folder made by `switchyard data prepare`.") from error


class Corpus:
    """A folder made by `switchyard data prepare`: corpus[i] has the tokens of document i, memory-mapped."""

    def __init__(self, folder):
        folder = Path(folder)
        index = _mapped(folder / "corpus.idx", "u1")
        sequences, marks = map(int, index[18:34].view("<u8")) if len(index) >= 34 else (0, 0)
        if (len(index) < 34 or len(index) != 34 + 12 * sequences + 8 * marks or bytes(index[:9]) != b"MMIDIDX\0\0"
                or int(index[9:17].view("<u8")[0]) != 1 or int(index[17]) not in _DTYPES):
            raise Error(f"{folder}/corpus.idx is no index of a corpus. Name a folder made by "
                        "`switchyard data prepare`.")
        dtype = numpy.dtype(_DTYPES[int(index[17])])
        sizes = index[34:34 + 4 * sequences].view("<i4")
        bounds = index[34 + 12 * sequences:34 + 12 * sequences + 8 * marks].view("<i8")
        self.lengths = numpy.add.reduceat(sizes, bounds[:-1]).astype("i8") if sequences else numpy.zeros(0, "i8")
        pointers = index[34 + 4 * sequences:34 + 12 * sequences].view("<i8")
        self._starts = pointers[bounds[:-1]] // dtype.itemsize if sequences else numpy.zeros(0, "i8")
        self._tokens = _mapped(folder / "corpus.bin", dtype)
        if self.lengths.sum() != len(self._tokens):
            raise Error(f"{folder}/corpus.idx is for {self.lengths.sum()} tokens, but corpus.bin has "
                        f"{len(self._tokens)}: they are of different corpora. Name a folder made by "
                        "`switchyard data prepare`.")

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, document):
        document = range(len(self))[document]
        return self._tokens[self._starts[document]:self._starts[document] + self.lengths[document]]
