"""Every subcommand's --help says something of each option."""

import re

import pytest
import tiny_runs as tiny

COMMANDS = ["train", "verify", "switch-plan", "show", "simulate", "plan", "profile", "report", "schedule", "data prepare", "data stats", "bench step", "bench switch",
            "bench comm", "bench kernels"]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_explained(command):
    result = tiny.run([tiny.PROGRAM, *command.split(), "--help"])
    assert result.returncode == 0
    options = re.split(r"\n(?=  \S)", result.stdout[result.stdout.lower().index("\noptions:"):])[1:]
    assert len(options) > 1
    for option in options:
        assert re.search(r"\S {2,}\S|\n +\S", option.strip()), option  # beside it or below it


def test_the_commands_are_all_that_there_are():
    def subcommands(text):
        return re.findall(r"^  ([a-z-]+) +\S", text[text.index("Subcommands:"):], re.MULTILINE)

    found = []
    for name in subcommands(tiny.run([tiny.PROGRAM, "--help"]).stdout):
        text = tiny.run([tiny.PROGRAM, name, "--help"]).stdout
        found += [f"{name} {inner}" for inner in subcommands(text)] if "Subcommands:" in text else [name]
    assert sorted(found) == sorted(COMMANDS)
