"""The --help of every subcommand explains each option."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tiny_runs as tiny

COMMANDS = ["train", "evaluate", "verify", "switch-plan", "show", "simulate", "plan", "profile", "report",
            "schedule", "export", "data prepare", "data stats", "bench step", "bench switch",
            "bench comm", "bench kernels"]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_explained(command):
    result = tiny.run([tiny.PROGRAM, *command.split(), "--help"])
    assert result.returncode == 0
    options = re.split(r"\n(?=  \S)", result.stdout[result.stdout.lower().index("\noptions:"):])[1:]
    assert len(options) > 1
    for option in options:
        assert re.search(r"\S {2,}\S|\n +\S", option.strip()), option  # help text beside or below the option


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_a_command_too(command):
    help_, option = (tiny.run([tiny.PROGRAM, *words]) for words in (["help", *command.split()],
                                                                     [*command.split(), "--help"]))
    assert help_.returncode == 0 and help_.stdout == option.stdout and help_.stderr == ""


def test_help_names_the_nearest_command():
    result = tiny.run([tiny.PROGRAM, "help", "simulat"])
    assert result.returncode == 2 and "simulat is not a command. Did you mean simulate?" in result.stderr


def test_the_list_of_commands_is_complete():
    def subcommands(text):
        return re.findall(r"^  ([a-z-]+) +\S", text[text.index("Subcommands:"):], re.MULTILINE)

    found = []
    for name in subcommands(tiny.run([tiny.PROGRAM, "--help"]).stdout):
        text = tiny.run([tiny.PROGRAM, name, "--help"]).stdout
        found += [f"{name} {inner}" for inner in subcommands(text)] if "Subcommands:" in text else [name]
    assert sorted(found) == sorted(COMMANDS)


def test_commands_that_need_no_device_start_without_libtorch():
    def libraries(program):
        return subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout

    assert "torch" not in libraries(tiny.PROGRAM)
    assert "torch" in libraries(tiny.PROGRAM + "-device")


def test_commands_that_need_the_device_program_report_that_it_is_missing(tmp_path):
    alone = shutil.copy(tiny.PROGRAM, tmp_path / "switchyard")
    assert tiny.run([alone, "schedule", "--help"]).returncode == 0
    result = tiny.run([alone, "train", "job.toml"])
    assert result.returncode == 2
    assert (result.stderr == f"switchyard: {tmp_path}/switchyard-device: No such file or directory. Both programs must "
                             "be in the same folder.\n")


def test_a_libtorch_that_is_no_longer_there_is_reported_with_what_to_do(tmp_path):
    """Such as after the Python environment was removed: the folder in which the program looks has another name."""
    for name in ("switchyard", "switchyard-device"):
        shutil.copy(Path(tiny.PROGRAM).with_name(name), tmp_path / name)
    program = tmp_path / "switchyard-device"
    program.write_bytes(program.read_bytes().replace(b"torch/lib", b"gone_/lib"))
    result = tiny.run([tmp_path / "switchyard", "train", "job.toml"])
    assert result.returncode == 2
    said = result.stderr.replace(" and libtorch_cuda.so", "")  # if it was built with a torch for CUDA
    assert (said == f"switchyard: {program} doesn't find libtorch_cpu.so and libc10.so, with which it was "
                    "built. Build it again (`make build`), or name the folder of these libraries in "
                    "LD_LIBRARY_PATH.\n")
    assert tiny.run([tmp_path / "switchyard", "schedule", "--help"]).returncode == 0
