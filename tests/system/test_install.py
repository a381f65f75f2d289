"""An installed prefix works where it lies and after it was moved, and other CMake projects find its layers."""

import shutil
import subprocess
from pathlib import Path

import pytest
import tiny_runs as tiny

BUILD = Path(tiny.PROGRAM).parent
CMAKELISTS = """\
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES CXX)
find_package(Switchyard 0.1 REQUIRED)
set(CMAKE_CXX_STANDARD 20)
add_executable(outside main.cpp)
target_link_libraries(outside Switchyard::planner)
"""
MAIN = """\
#include <cstdio>

#include "config/hardware.hpp"
#include "config/model.hpp"
#include "planner/plan.hpp"

int main() {
  using namespace switchyard;
  std::printf("%lld parameters, %d ranks\\n",
              static_cast<long long>(config::parameter_count(config::model_preset("7b"))),
              config::load_hardware("demo", 4).ranks());
}
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installed prefix that was moved."""
    folder = tmp_path_factory.mktemp("install")
    done = tiny.run(["cmake", "--install", BUILD, "--prefix", folder / "first"])
    assert done.returncode == 0, done.stderr
    return (folder / "first").rename(folder / "moved")


def test_the_programs_of_a_moved_prefix_prepare_data_and_train(prefix, tmp_path):
    (tmp_path / "texts").mkdir()
    for i in range(8):
        (tmp_path / "texts" / f"{i}.txt").write_text(f"Line {i} of some text.\n" * (i + 1))
    program = prefix / "bin" / "switchyard"
    prepare = [program, "data", "prepare", "--input", tmp_path / "texts", "--tokenizer", "train:300", "--out",
               tmp_path / "data"]
    done = tiny.run(prepare, environment=tiny.ENVIRONMENT | {"SWITCHYARD_PYTHON": tiny.PYTHON})
    assert done.returncode == 0, done.stderr
    job = tiny.write_job(tmp_path / "job.toml", tmp_path / "data", [(48, "1,1,1")],
                         model=tiny.MODEL | {"vocab_size": 300}, run={"ranks": 1, "steps": 1})
    done = tiny.run([program, "train", job])
    assert done.returncode == 0 and "1 step" in done.stderr + done.stdout, done.stderr


def test_the_environment_that_a_prefix_is_installed_into_has_its_python(prefix):
    python = prefix / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    try:
        done = tiny.run([prefix / "bin/switchyard", "data", "prepare", "--out", "x"])
    finally:
        python.unlink()
    assert done.stdout.endswith(" switchyard_data prepare --out x\n"), done.stderr


def test_without_the_python_half_it_says_what_to_set(prefix, tmp_path):
    (tmp_path / "bin").mkdir()
    shutil.copy(prefix / "bin/switchyard", tmp_path / "bin")
    done = tiny.run([tmp_path / "bin/switchyard", "data", "prepare"])
    assert done.returncode == 2
    assert done.stderr == (f"switchyard: found no Python modules at {tmp_path}/python. Run the program from its build "
                           "folder or an installed prefix, or set SWITCHYARD_ROOT to the source folder.\n")


def test_recipes_clusters_and_notices_are_installed(prefix):
    shared = prefix / "share/switchyard"
    for name in ("clusters/demo.toml", "recipes/hotspa/7b-8gpu-github.toml", "demo/job.toml", "LICENSE",
                 "THIRD_PARTY_NOTICES.md"):
        assert (shared / name).is_file(), name


def test_the_module_of_a_moved_prefix_plans_and_simulates(prefix, tmp_path):
    script = ("import switchyard\n"
              "options = {'model': '7b', 'context': 1024, 'sequences': 16, 'cluster': 'h100-80g'}\n"
              "print(switchyard.simulate(**options, strategy='4,2,1')['fits'], switchyard.__file__)\n"
              "print(switchyard.plan(**options, ranks=8, buckets=1)['proven'], switchyard._native.__file__)")
    module = prefix / "share/switchyard/python"
    environment = {name: value for name, value in tiny.ENVIRONMENT.items() if name != "SWITCHYARD_PROGRAM"}
    done = tiny.run([tiny.PYTHON, "-c", script], cwd=tmp_path, environment=environment | {"PYTHONPATH": str(module)})
    assert (done.returncode, done.stderr) == (0, "")
    for line in done.stdout.splitlines():
        assert line.startswith(f"True {module}/switchyard/")


def test_another_project_finds_the_pure_layers(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CMAKELISTS)
    (tmp_path / "main.cpp").write_text(MAIN)
    build = tmp_path / "build"
    for command in (["cmake", "-G", "Ninja", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"],
                    ["cmake", "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert tiny.run([build / "outside"]).stdout == "6738415616 parameters, 4 ranks\n"
