"""The commands and files of README and docs work."""

import ast
import json
import re
import shlex

import pytest
import tiny_runs as tiny

README = (tiny.ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINES = [line for language, text in BLOCKS if language in ("", "sh", "bash") for line in text.splitlines()]
COMMANDS = [line for line in LINES if "build/switchyard " in line]
# Those without a limit of time get one here.
PLANNING = [line.strip().replace("--seconds 0", "--seconds 1")
            for line in (tiny.ROOT / "docs" / "planning.md").read_text().splitlines()
            if line.strip().startswith("build/switchyard ")]


def arguments_of(line):
    return shlex.split(line.partition("build/switchyard ")[2])


def subcommand_of(arguments):
    return arguments[:2] if arguments[0] == "data" else arguments[:1]


def test_the_readme_shows_every_subcommand_that_a_newcomer_needs():
    shown = {" ".join(subcommand_of(arguments_of(line))) for line in COMMANDS}
    assert {"train", "data prepare", "data stats", "show", "switch-plan"} <= shown


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_readme_has_only_options_that_its_help_lists(line):
    arguments = arguments_of(line)
    help_text = tiny.run([tiny.PROGRAM, *subcommand_of(arguments), "--help"])
    assert help_text.returncode == 0, help_text.stderr
    for option in [word for word in arguments if word.startswith("--")]:
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", help_text.stdout), option


@pytest.fixture(scope="session")
def profile(tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    # The times of emulated devices are measured soonest. The tutorial's profile is one of ranks.
    result = tiny.run([tiny.PROGRAM, "profile", "--quick", "--emulate", "1x4:1GB/s,8GiB", "--out", path])
    assert result.returncode == 0, result.stderr
    return path


@pytest.mark.parametrize("line",
                         [line for line in COMMANDS if arguments_of(line)[0] in ("show", "simulate", "switch-plan")] +
                         PLANNING)
def test_a_command_of_the_readme_that_only_prints_does_so(line, tmp_path, profile):
    line = line.replace("step.json", str(tmp_path / "step.json")).replace("--report out", f"--report {tmp_path}/out")
    result = tiny.run([tiny.PROGRAM, *arguments_of(line.replace("profile.json", str(profile)))], cwd=tiny.ROOT)
    assert result.returncode == 0 and len(result.stdout.splitlines()) > 3, result.stderr


def with_small_numbers(line):
    return line.replace("run.checkpoint_every=50", "run.checkpoint_every=2").replace("--steps 1000", "--steps 4")


def test_the_commands_from_own_files_to_a_resumed_run_work_as_written(tmp_path):
    (tmp_path / "texts").mkdir()
    for i in range(12):
        (tmp_path / "texts" / f"{i}.{'md' if i % 2 else 'txt'}").write_text(f"Line {i} of some text.\n" * (3 * i + 1))
    job = (tiny.ROOT / "demo" / "job.toml").read_text()
    for key, value in (("path", '"data/mine"'), ("vocab_size", 512), ("hidden_size", 64), ("tokens", 2000),
                       ("steps", 2)):
        job, found = re.subn(rf"^{key} = .*$", f"{key} = {value}", job, flags=re.MULTILINE)
        assert found == 1
    (tmp_path / "mine.toml").write_text(job)
    own = [line for line in COMMANDS if line.startswith("build/") and any(
        name in line for name in ("data/mine", "mine.toml", "runs/mine"))]
    assert [arguments_of(line)[0] for line in own] == ["data", "data", "train", "train", "export"]
    for line in own:
        result = tiny.run([tiny.PROGRAM, *arguments_of(with_small_numbers(line))], cwd=tmp_path)
        assert result.returncode == 0, f"{line}\n{result.stderr}"
    assert [entry["step"] for entry in tiny.read_log(tmp_path / "runs" / "mine")] == [1, 2, 3, 4]
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {path.name for path in
                                                                      (tmp_path / "models/mine").iterdir()}


def test_the_chart_of_the_readme_is_of_the_run_that_the_demo_is_described_by():
    chart = re.findall(r"^(?:planned strategies|best single strategy|the usual default) +(\d+)(?: tokens/s)? +(#+)$",
                       README, re.MULTILINE)
    table = re.findall(r"^(?:the plan|the best single strategy|the usual default) +(\d+) +[\d.]+%",
                       README, re.MULTILINE)
    assert len(table) == 3 and [rate for rate, _ in chart] == table
    plan, single, usual = map(int, table)
    assert [len(bar) for _, bar in chart] == [round(26 * rate / plan) for rate in (plan, single, usual)]
    told = re.search(r"The plan is ([\d.]+) times as fast as the best single strategy and ([\d.]+) times as", README)
    assert told.groups() == (f"{plan / single:.2f}", f"{plan / usual:.2f}")


def test_the_picture_of_the_readme_is_of_the_run_that_the_demo_is_described_by():
    told = re.search(r"^Why: the plan takes ([\d.]+) s .*, the best single strategy \(.*\) ([\d.]+) s,", README,
                     re.MULTILINE)
    steps = [float(seconds) for seconds in told.groups()]
    exposed = [int(re.search(rf"^{name} .* (\d+)% +[\d.]+%$", README, re.MULTILINE)[1])
               for name in ("the plan", "the best single strategy")]
    drawn = [re.search(rf"^{name} +(=+)(\.+) +([\d.]+), of which ([\d.]+) waiting$", README, re.MULTILINE).groups()
             for name in ("a split for each range", "one split for all")]
    for step, share, (computing, waiting, *seconds) in zip(steps, exposed, drawn):
        lost = step * share / 100
        assert seconds == [f"{step:.1f}", f"{lost:.1f}"]
        assert [len(computing), len(waiting)] == [round(5 * (step - lost)), round(5 * lost)]


def test_the_make_targets_of_the_readme_exist():
    targets = re.findall(r"^(\w+):", (tiny.ROOT / "Makefile").read_text(), re.MULTILINE)
    told = [line.split()[1] for line in LINES if line.startswith("make ")]
    assert told and set(told) <= set(targets)


def test_links_and_files_of_the_readme_exist():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    files = re.findall(r"`((?:demo|docs|recipes|reference|tools|tests|bench)/[\w./-]*|[\w-]+\.txt)`", README)
    assert len(links) > 5 and files
    for name in links + files:
        assert (tiny.ROOT / name).exists(), name


def test_the_example_of_the_strategy_format_is_accepted(tmp_path):
    document = (tiny.ROOT / "docs" / "strategy-format.md").read_text()
    strategy = json.loads(re.search(r"^```json\n(.*?)^```", document, re.MULTILINE | re.DOTALL)[1])
    (tmp_path / "uneven.json").write_text(json.dumps(strategy))
    job = tiny.write_job(tmp_path / "job.toml", tmp_path / "no-data", [(4096, tmp_path / "uneven.json")],
                         model={"preset": "7b", "vocab_size": 32000}, batch={"context": 4096}, run={"ranks": 8})
    result = tiny.run([tiny.PROGRAM, "show", "plan", job])
    assert result.returncode == 0 and re.search(r"\n4096 .* uneven\n", result.stdout), result.stderr


def test_messages_of_the_troubleshooting_page_are_those_of_the_program():
    page = (tiny.ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE)
    sources = [path.read_text() for folder in ("src", "apps", "python", "tools", "cmake")
               for path in sorted((tiny.ROOT / folder).rglob("*"))
               if path.is_file() and path.suffix in (".cpp", ".hpp", ".py", ".cmake", "")]
    text = re.sub(r'"\s*\n\s*[fr]?"', "", "\n".join(sources))  # literals go on in the next line
    assert len(rows) > 15
    for row in rows:
        for part in re.findall(r"`([^`]+)`", row):
            assert part.strip() in text, part


# Where messages tell all by themselves, and why. They may have a row all the same.
SELF_EXPLANATORY = {
    "src/base/(units|dtype).cpp": "the value is shown with what it may be",
    "src/(batch/planner|config/.*|compiler/.*).cpp": "a key of a job, strategy, schedule or cluster file",
    "src/cluster/cluster.cpp": "a line of a hostfile",
    "src/data/drawn_lengths.cpp": "an entry of a histogram of lengths",
    "src/files/hf_config.cpp": "a key of the job that Hugging Face's format has no place for",
    "src/train/(bench_.*|verify).cpp|apps/.*.cpp": "an option, or a file that an option names",
}
ASKS = re.compile(r"[.?;:}] (Add|Ask|Both|Build|Change|Check|Choose|Copy|Correct|Delete|Do|Does|Each|Either"
                  r"|Export|Fetch|Fix|Free|Give|Go|Install|Is|Keep|Launch|Leave|List|Lower|Make|Mark|Measure|Name"
                  r"|Only|Prepare|Raise|Recreate|Remove|Repair|Resume|Round|Run|Say|See|Separate|Set|Something|Start"
                  r"|Supported|Take|The message from|Type|Use|Wait|Write)\b")


def literals_of(path):
    """Its string literals; those that go on in the next line are joined."""
    text = path.read_text()
    if path.suffix == ".py":
        nodes = list(ast.walk(ast.parse(text)))
        inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                yield node.value
    elif path.suffix == "":  # shell: words of `echo` go on in the next line
        lines = re.sub(r"(?m)^\s*#.*", "", text).replace("\\\n", " ")
        for line in re.findall(r"\becho (.*)", lines):
            yield " ".join(re.sub(r'" +"', " ", line).split()).replace('"', "")
    else:
        literal = r'"(?:[^"\\\n]|\\.)*"'
        for found in re.findall(rf"{literal}(?:\s*{literal})*", re.sub(r"//.*|'\\?\"'", "", text)):
            yield re.sub(r"\\(.)", r"\1", re.sub(r'(?<!\\)"\s*"', "", found)[1:-1])


def test_the_troubleshooting_page_has_every_message_that_asks_for_something():
    """Messages whose second sentence is in the imperative or asks a question, but for those that explain themselves."""
    page = (tiny.ROOT / "docs" / "troubleshooting.md").read_text()
    parts = [part for row in re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE)
             for part in re.findall(r"`([^`]+)`", row)]
    asking, lacking = 0, []
    for folder in ("src", "apps", "python", "tools"):
        for path in sorted((tiny.ROOT / folder).rglob("*")):
            place = str(path.relative_to(tiny.ROOT))
            if path.is_dir() or path.suffix not in (".cpp", ".hpp", ".py", ""):
                continue
            for text in filter(ASKS.search, literals_of(path)):
                asking += 1
                if not any(part in text for part in parts) and not re.fullmatch("|".join(SELF_EXPLANATORY), place):
                    lacking.append(f"{place}: {text}")
    assert asking > 250
    assert not lacking, "\n".join(lacking)


def test_what_the_comparison_says_of_other_systems_has_a_source():
    page, _, sources = (tiny.ROOT / "docs" / "comparison.md").read_text().partition("\n## Sources\n")
    rows = re.findall(r"^\| (\*\*.*) \|$", page, re.MULTILINE)
    assert len(rows) > 5 and rows[0].startswith("**Switchyard**")
    for system, *facts in (row.split(" | ") for row in rows[1:]):
        for fact in (part for cell in facts for part in cell.split("; ")):
            assert re.search(r"\[[\d, ]+\]", fact), f"{system}: {fact}"
    cited = {int(number) for group in re.findall(r"\[([\d, ]+)\]", page) for number in group.split(",")}
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", sources, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1)) and cited == set(numbers)
    for source in re.split(r"^\d+\. ", sources, flags=re.MULTILINE)[1:]:
        assert re.search(r"arXiv \d{4}\.\d{5}|\w\.(com|ai|org)/\w|SOSP 20\d\d", source), source


@pytest.mark.parametrize("page", sorted((tiny.ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_links_of_the_pages_exist(page):
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert "://" in link or (page.parent / link).exists(), link
