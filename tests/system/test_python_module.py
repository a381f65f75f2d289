"""The Python module switchyard, and what the wheel says of itself."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import threading
import venv
from concurrent.futures import ThreadPoolExecutor
from email.parser import Parser
from pathlib import Path

import numpy
import pytest
import tiny_runs as tiny
from packaging.requirements import Requirement

sys.path.insert(0, str(tiny.ROOT / "python"))
import switchyard  # noqa: E402

# The project's wheel around a program that is built already: what is installed, and where, says the project's own file.
WHEEL = """\
cmake_minimum_required(VERSION 3.25)
project(wheel VERSION 0.1 LANGUAGES CXX)
set(SWITCHYARD_TORCH ON)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
find_package(fmt REQUIRED)
file(WRITE ${{CMAKE_BINARY_DIR}}/main.cpp "int main() {{}}")
foreach(name switchyard switchyard-device)
  add_executable(${{name}} ${{CMAKE_BINARY_DIR}}/main.cpp)
  add_custom_command(TARGET ${{name}} POST_BUILD
                     COMMAND ${{CMAKE_COMMAND}} -E copy {built}/${{name}} $<TARGET_FILE:${{name}}>)
endforeach()
file(GLOB library {built}/module/_native.*.so)
get_filename_component(name ${{library}} NAME)
add_library(switchyard_native MODULE ${{CMAKE_BINARY_DIR}}/main.cpp)
set_target_properties(switchyard_native PROPERTIES PREFIX "" OUTPUT_NAME ${{name}} SUFFIX "")
add_custom_command(TARGET switchyard_native POST_BUILD
                   COMMAND ${{CMAKE_COMMAND}} -E copy ${{library}} $<TARGET_FILE:switchyard_native>)
add_dependencies(switchyard switchyard-device switchyard_native)
add_library(switchyard_libraries INTERFACE)
include(cmake/install.cmake)
"""
OPTIONS = {"model": "7b", "context": 1024, "sequences": 16, "cluster": "h100-80g"}


@pytest.fixture(autouse=True)
def program(monkeypatch):
    monkeypatch.setenv("SWITCHYARD_PROGRAM", tiny.PROGRAM)


def test_plans_simulations_and_switches_are_those_of_the_commands():
    result = tiny.run([tiny.PROGRAM, "simulate", "--model", "7b", "--context", "1024", "--sequences", "16", "--cluster",
                       "h100-80g", "--strategy", "4,2,1", "--json"])
    assert switchyard.simulate(**OPTIONS, strategy="4,2,1") == json.loads(result.stdout.splitlines()[-1])
    found = switchyard.plan(**OPTIONS, ranks=8, buckets=1)
    assert found["step_seconds"] > 0 and len(found["chosen"]) == 1
    switch = switchyard.switch_plan("2,4,2", "4,4,1", model="7b", cluster="h100-80g")
    assert switch["seconds"] > 0 and switch["messages"] > 0


def test_a_job_file_and_options_that_repeat(tmp_path, corpus):
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(tiny.LONGEST, "1,2,1")])
    plain = switchyard.simulate(job, cluster="demo")
    changed = switchyard.simulate(job, cluster="demo", set=["batch.sequences=2", "run.precision=fp32"])
    assert changed["step_seconds"] < plain["step_seconds"]


def test_what_does_not_fit_has_figures_and_what_is_wrong_raises():
    assert switchyard.simulate(**OPTIONS | {"model": "32b"}, strategy="8,1,1")["fits"] is False
    with pytest.raises(switchyard.Error, match="there is no job file, and --context is missing"):
        switchyard.plan(model="7b", cluster="h100-80g")
    with pytest.raises(switchyard.Error, match="nowhere.toml: can't read the job file"):
        switchyard.plan("nowhere.toml", cluster="h100-80g")


def in_python(script, *arguments, **variables):
    """What a script that has imported the module prints."""
    environment = tiny.ENVIRONMENT | {"PYTHONPATH": str(tiny.ROOT / "python"), "SWITCHYARD_PROGRAM": tiny.PROGRAM}
    options = f"import switchyard\nOPTIONS = {OPTIONS!r}\n"
    done = tiny.run([tiny.PYTHON, "-c", options + textwrap.dedent(script), *arguments],
                    environment=environment | variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_no_process_is_started():
    assert in_python("""
        import os, sys
        started = {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "os.exec"}
        seen = []
        sys.addaudithook(lambda event, _: seen.append(event) if event in started else None)
        switchyard.plan(**OPTIONS, ranks=8, buckets=1)
        switchyard.simulate(**OPTIONS, strategy="4,2,1")
        switchyard.switch_plan("2,4,2", "4,4,1", model="7b", cluster="2x8")
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print(seen)
        """) == "[]\n"


def test_nothing_is_printed(tmp_path):
    """Where the commands print while they compute: a range of batch sizes, no data, a report, an explanation."""
    job = tiny.write_job(tmp_path / "job.toml", tmp_path / "nowhere", [(tiny.LONGEST, "1,2,1")])
    assert in_python("""
        import sys
        found = switchyard.plan(**OPTIONS | {"sequences": "8..16"}, ranks=8, buckets=1, explain=True,
                                out=sys.argv[2] + "/planned.toml")
        assert found["sequences"] in (8, 16)
        assert switchyard.simulate(sys.argv[1], cluster="demo", report=sys.argv[2])["fits"]
        """, job, tmp_path) == ""
    assert (tmp_path / "planned.toml").is_file() and (tmp_path / "report.html").is_file()


def test_bad_input_raises_what_the_command_says():
    plan, simulate, switch_plan = switchyard.plan, switchyard.simulate, switchyard.switch_plan
    for call, message in (
            (lambda: plan("no-\udcff.toml", cluster="h100-80g"), "no-\udcff.toml: can't read the job file"),
            (lambda: plan(**OPTIONS, colour="red"), "not expected: --colour"),
            (lambda: plan(**OPTIONS, seconds=-1), "--seconds -1: must be a number"),
            (lambda: plan(**OPTIONS, ranks=8, set="run.rank=1"), "Did you mean run.ranks?"),
            (lambda: simulate(**OPTIONS, strategy="4,2,1", steps=0), "--steps: Value 0 not in range"),
            (lambda: simulate(**OPTIONS, strategy="3,2"), 'strategy "3,2" is not "dp,tp,pp"'),
            (lambda: simulate(**OPTIONS, strategy="4,2,1", report="/proc/no"), "cannot make folder /proc/no"),
            (lambda: simulate(**OPTIONS, strategy="4,2,1", help=True), "`switchyard simulate --help`"),
            (lambda: switch_plan("2,4,2", "4,4,1", model="7b", cluster="none"), "none")):
        with pytest.raises(switchyard.Error) as raised:
            call()
        said = str(raised.value)
        assert message in said and not said.startswith(("switchyard: ", "internal error: "))
    with pytest.raises(ValueError, match="null byte"):
        plan("job\0.toml", cluster="h100-80g")


def without_times(figures):
    return {name: value for name, value in figures.items()
            if name not in ("seconds", "planning_seconds", "mapping_seconds")}


def test_threads_compute_at_once_what_one_computes():
    def switch(from_, to):
        return lambda: switchyard.switch_plan(from_, to, model="7b", cluster="2x8")

    calls = [lambda: switchyard.plan(**OPTIONS, ranks=8), lambda: switchyard.plan(**OPTIONS, ranks=4),
             lambda: switchyard.simulate(**OPTIONS, strategy="4,2,1"),
             lambda: switchyard.simulate(**OPTIONS, strategy="2,4,1"),
             switch("2,4,2", "4,4,1"), switch("4,4,1", "2,8,1"), switch("1,8,2", "2,4,2")]
    alone = [without_times(call()) for call in calls]
    order = [0, 1] + 10 * [2, 3] + 25 * [4, 5, 6]  # short calls often read their options while others read theirs
    with ThreadPoolExecutor(6) as threads:
        for number, found in zip(order, threads.map(lambda number: without_times(calls[number]()), order), strict=True):
            assert found == alone[number]


def test_other_threads_go_on():
    assert switchyard.simulate(**OPTIONS, strategy="4,2,1")["fits"]  # the library is loaded
    begun, ended = threading.Event(), threading.Event()

    def compute():
        begun.set()
        switchyard.plan(**OPTIONS | {"context": 8192, "lengths": "commoncrawl"}, ranks=8)
        ended.set()

    thread = threading.Thread(target=compute)
    thread.start()
    begun.wait()
    turns = 0
    while not ended.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 20


def test_an_interrupt_ends_a_long_search():
    """The search would take until its limit, half an hour."""
    assert in_python("""
        import os, signal, threading, time
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        try:
            switchyard.plan(model="32b", context=32768, lengths="commoncrawl", sequences=2048, cluster="a800-80g",
                            ranks=64, seconds=1800)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - start < 900)
        """) == "interrupted True\n"


def test_without_its_library_the_module_says_what_to_do(tmp_path):
    (tmp_path / "switchyard").write_text("")
    assert in_python("""
        try:
            switchyard.simulate(**OPTIONS, strategy="4,2,1")
        except switchyard.Error as error:
            print(error)
        """, SWITCHYARD_PROGRAM=str(tmp_path / "switchyard")).endswith(
            f"or {tmp_path}/module. Install the wheel, or build Switchyard with nanobind in .venv, which `make build` "
            "installs, and Python's headers (python3-dev).\n")


def test_runs_and_corpora_are_read(tmp_path):
    documents = tiny.random_documents(3, 20)
    corpus = tiny.write_corpus(tmp_path / "corpus", documents)
    read = switchyard.Corpus(corpus)
    assert len(read) == 20 and [list(document) for document in read] == documents
    assert read.lengths.tolist() == [len(document) for document in documents] and list(read[-1]) == documents[-1]
    with pytest.raises(IndexError):
        read[20]
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(tiny.LONGEST, "1,1,1")], run={"steps": 3})
    log = tiny.train(job, "--out", tmp_path / "run")
    run = switchyard.Run(tmp_path / "run")
    assert run.steps == log and run.column("loss").tolist() == [line["loss"] for line in log]
    assert run.validations == []
    with (tmp_path / "run/log.jsonl").open("a") as file:
        file.write('{"step": 4, "validation_loss": 0.5}\n')
    longer = switchyard.Run(tmp_path / "run")
    assert numpy.isnan(longer.column("loss")[3]) and numpy.isnan(longer.column("validation_loss")[:3]).all()
    with pytest.raises(switchyard.Error, match='No step of .*run has "los". Use one of .*, loss, '):
        longer.column("los")
    with pytest.raises(switchyard.Error, match="no run"):
        switchyard.Run(tmp_path / "none")


def test_documents_of_a_corpus_may_lie_in_another_order_than_its_index_has(tmp_path):
    corpus = tiny.write_corpus(tmp_path / "corpus", [[6, 7, 8, 9], [1, 2, 3], [4, 5]])
    index = corpus / "corpus.idx"
    data = bytearray(index.read_bytes())
    for first, kind in ((34, "<i4"), (34 + 3 * 4, "<i8")):  # sizes, and where they begin
        column = numpy.frombuffer(data, kind, 3, first)
        column[:] = column[[1, 2, 0]]
    index.write_bytes(data)
    assert [list(document) for document in switchyard.Corpus(corpus)] == [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


def test_a_corpus_that_cannot_be_read_is_named(tmp_path):
    def refused(folder):
        with pytest.raises(switchyard.Error) as raised:
            switchyard.Corpus(folder)
        return str(raised.value)
    remedy = "Name a folder made by `switchyard data prepare`."
    assert refused("nope") == f"nope/corpus.idx can't be read: No such file or directory. {remedy}"
    corpus, other = tmp_path / "corpus", tmp_path / "other"
    tiny.write_corpus(corpus, [[1, 2, 3], [4]])
    tiny.write_corpus(other, [[1, 2]])
    (corpus / "corpus.idx").write_bytes((other / "corpus.idx").read_bytes())
    assert refused(corpus) == (f"{corpus}/corpus.idx is for 2 tokens, but corpus.bin has 4: they are of different "
                               f"corpora. {remedy}")
    (corpus / "corpus.bin").write_bytes(b"abc")
    assert f"{corpus}/corpus.bin can't be read" in refused(corpus)
    (corpus / "corpus.idx").write_bytes(b"")
    assert f"{corpus}/corpus.idx can't be read" in refused(corpus)
    whole = (other / "corpus.idx").read_bytes()
    for size in (1, 9, 17, 34, len(whole) - 1):
        (corpus / "corpus.idx").write_bytes(whole[:size])
        assert refused(corpus) == f"{corpus}/corpus.idx is no index of a corpus. {remedy}"


def test_the_module_is_the_program():
    environment = tiny.ENVIRONMENT | {"PYTHONPATH": str(tiny.ROOT / "python"), "SWITCHYARD_PROGRAM": tiny.PROGRAM}
    for words in (["show", "model", "--model", "7b"], ["show"]):
        ours = tiny.run([tiny.PYTHON, "-m", "switchyard", *words], environment=environment)
        theirs = tiny.run([tiny.PROGRAM, *words])
        assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


def test_the_example_of_the_readme_works(tmp_path, monkeypatch):
    example = re.search(r"^```python\n(.*?)^```", (tiny.ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    corpus = tiny.write_corpus(tmp_path / "data" / "python", tiny.random_documents(3, 20))
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(tiny.LONGEST, "1,1,1")], run={"steps": 1})
    tiny.train(job, "--out", tmp_path / "runs/demo/plan-1")
    (tmp_path / "demo").symlink_to(tiny.ROOT / "demo")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(example, names)  # noqa: S102
    assert names["found"]["chosen"]


def test_it_finds_the_program_of_its_prefix(tmp_path, monkeypatch):
    module = shutil.copytree(tiny.ROOT / "python" / "switchyard", tmp_path / "share/switchyard/python/switchyard")
    (tmp_path / "bin").mkdir()
    os.symlink(tiny.PROGRAM, tmp_path / "bin" / "switchyard")
    environment = {name: value for name, value in os.environ.items() if name != "SWITCHYARD_PROGRAM"}
    words = [tiny.PYTHON, "-c", "import switchyard; print(switchyard.program())"]
    found = subprocess.run(words, cwd=module.parent, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(tmp_path / "bin" / "switchyard")
    (tmp_path / "bin" / "switchyard").unlink()
    missing = subprocess.run(words, cwd=module.parent, env=environment, capture_output=True, text=True, check=False)
    assert missing.returncode == 1 and "Install the wheel, or set SWITCHYARD_PROGRAM." in missing.stderr


def test_its_source_folder_may_lie_in_the_root_folder(monkeypatch):
    monkeypatch.delenv("SWITCHYARD_PROGRAM")
    monkeypatch.setattr(switchyard, "__file__", "/no-such-folder/python/switchyard/__init__.py")
    with pytest.raises(switchyard.Error, match="there is no program at /no-such-folder/python/switchyard/bin"):
        switchyard.program()


def test_the_wheel_has_the_version_of_the_program_and_the_packages_that_it_needs(tmp_path, monkeypatch):
    build = pytest.importorskip("scikit_build_core.build")
    monkeypatch.chdir(tiny.ROOT)
    folder = build.prepare_metadata_for_build_wheel(str(tmp_path))
    told = Parser().parsestr((tmp_path / folder / "METADATA").read_text())
    version = re.search(r'kVersion = "([^"]+)"', (tiny.ROOT / "src/base/version.hpp").read_text())[1]
    assert told["Name"] == "switchyard" and told["Version"] == version
    needed = {Requirement(line) for line in (tiny.ROOT / "packages/requirements.in").read_text().splitlines()
              if line and not line.startswith("#")}
    within = {Requirement("bokeh>=3.9,<4"), Requirement("nanobind>=3.1,<4")}  # parts of them are in the wheel
    assert {Requirement(line) for line in told.get_all("Requires-Dist")} == needed - within
    requires = re.search(r"^requires = (.*)$", (tiny.ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert within <= {Requirement(item) for item in json.loads(requires)}


PIP = [tiny.PYTHON, "-m", "pip", "--disable-pip-version-check"]


def made_wheel(folder):
    """A wheel of the project's CMake rules around the programs that are built already."""
    pytest.importorskip("scikit_build_core.build")
    source = folder / "source"
    for name in ("cmake", "python", "clusters", "recipes", "demo"):
        shutil.copytree(tiny.ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY_NOTICES.md", "src/base/version.hpp"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tiny.ROOT / name, source / name)
    (source / "CMakeLists.txt").write_text(WHEEL.format(built=Path(tiny.PROGRAM).resolve().parent))
    built = tiny.run([*PIP, "wheel", source, "--no-deps", "--no-build-isolation", "--no-index", "-w", folder])
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("switchyard-*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The Python of an environment that a wheel is installed into; SWITCHYARD_WHEEL: one that is there already."""
    folder = tmp_path_factory.mktemp("wheel")
    file = os.environ.get("SWITCHYARD_WHEEL") or made_wheel(folder)
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    python = folder / "venv/bin/python"
    packages = next((folder / "venv/lib").glob("python*/site-packages"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (packages / "torch").symlink_to(Path(sysconfig.get_path("purelib")) / "torch")  # whose libraries the programs take
    done = tiny.run([*PIP, "--python", python, "install", "--no-deps", "--no-index", "--ignore-installed", file])
    assert done.returncode == 0, done.stdout + done.stderr
    return python


def from_wheel(*words, **options):
    environment = {name: value for name, value in tiny.ENVIRONMENT.items() if not name.startswith("SWITCHYARD_")}
    done = tiny.run(words, environment=environment, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_wheel_is_a_module_and_a_program(wheel, tmp_path):
    module = Path(from_wheel(wheel, "-c", "import switchyard; print(switchyard.program())", cwd=tmp_path).strip())
    assert module.is_relative_to(wheel.parents[1]), "the program is within"
    version = re.search(r'kVersion = "([^"]+)"', (tiny.ROOT / "src/base/version.hpp").read_text())[1]
    for words in ([wheel, "-m", "switchyard"], [wheel.parent / "switchyard"]):
        assert from_wheel(*words, "--version", cwd=tmp_path) == f"switchyard {version}\n"
    figures = from_wheel(wheel, "-c", f"import switchyard; print(switchyard.simulate(**{OPTIONS}, strategy='4,2,1'))",
                         cwd=tmp_path)
    assert "'step_seconds'" in figures
    told = from_wheel(wheel, "-m", "switchyard", "simulate", "--model", "7b", "--context", "1024", "--sequences", "16",
                      "--cluster", "h100-80g", "--strategy", "4,2,1", "--json", cwd=tmp_path)
    assert json.loads(told.splitlines()[-1])["step_seconds"] > 0


def test_the_installed_wheel_trains(wheel, tmp_path, corpus):
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(tiny.LONGEST, "2,1,1")], run={"steps": 2})
    from_wheel(wheel, "-m", "switchyard", "train", job, "--out", tmp_path / "run", cwd=tmp_path)
    assert [entry["step"] for entry in tiny.read_log(tmp_path / "run")] == [1, 2]


@pytest.mark.skipif("SWITCHYARD_WHEEL" not in os.environ, reason="that of the tests has programs of the build folder")
def test_an_installed_wheel_looks_for_libraries_only_beside_itself(wheel):
    module = next(wheel.parents[1].glob("lib/python*/site-packages/switchyard"))
    for path in (module / "bin/switchyard", module / "bin/switchyard-device", next(module.glob("_native*.so"))):
        folders = re.search(r"\(RUNPATH\) .*\[(.*)\]", tiny.run(["readelf", "-d", path]).stdout)[1].split(":")
        assert folders and all(folder.startswith("$ORIGIN/") for folder in folders), (path.name, folders)


def test_an_installed_module_without_its_program_says_so(wheel, tmp_path):
    """The environment's script of the same name would start it again, for ever."""
    packages = next(wheel.parents[1].glob("lib/python*/site-packages"))
    broken = tmp_path / "lib/python3/site-packages"
    shutil.copytree(packages / "switchyard", broken / "switchyard", ignore=shutil.ignore_patterns("bin"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/switchyard").write_text("#!/bin/sh\nexit 9\n")
    environment = {name: value for name, value in tiny.ENVIRONMENT.items() if name != "SWITCHYARD_PROGRAM"}
    done = tiny.run([wheel, "-m", "switchyard", "--version"], cwd=broken, environment=environment)
    assert done.returncode == 1
    assert "switchyard/bin/switchyard. Install the wheel, or set SWITCHYARD_PROGRAM." in done.stderr


def test_the_installed_wheel_prepares_data(wheel, tmp_path):
    (tmp_path / "text.txt").write_text("Some text.\n" * 20)
    from_wheel(wheel, "-m", "switchyard", "data", "prepare", "--input", tmp_path / "text.txt",
               "--tokenizer", "train:300", "--out", tmp_path / "data", cwd=tmp_path)
    documents = from_wheel(wheel, "-c", "import switchyard; print(len(switchyard.Corpus('data')))", cwd=tmp_path)
    assert documents.strip() == "1"


def test_the_installed_wheel_has_licence_notices_and_recipes(wheel):
    packages = next(wheel.parents[1].glob("lib/python*/site-packages"))
    for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
        ours = (tiny.ROOT / name).read_text()
        assert (packages / "switchyard/share/switchyard" / name).read_text() == ours
        assert [path.read_text() for path in packages.glob(f"switchyard-*.dist-info/licenses/{name}")] == [ours]
    assert (packages / "switchyard/share/switchyard/recipes/hotspa/7b-8gpu-github.toml").is_file()
