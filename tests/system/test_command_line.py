"""Words of the command line and the environment are used exactly, or refused by name with exit status 2."""

import json
import os
import resource
import subprocess
import sys

import pytest
import tiny_runs as tiny

USER_ERROR, CLUSTER_ERROR = 2, 3
BUCKETS = [(48, "1,2,1"), (20, "2,1,1")]


@pytest.fixture
def job(tmp_path, corpus):
    return lambda buckets=BUCKETS, **changes: tiny.write_job(tmp_path / "job.toml", corpus, buckets, **changes)


def refusal(words, **options):
    """The message of a command that must exit with 2 and print nothing else."""
    result = tiny.run(words, **options)
    assert result.returncode == USER_ERROR and result.stdout == "", result
    assert result.stderr.startswith("switchyard: "), result.stderr
    return result.stderr[len("switchyard: "):].rstrip("\n")


# ---- kinds of tables


@pytest.mark.parametrize("command", [["train"], ["plan", "--cluster", "demo"], ["simulate", "--cluster", "demo"],
                                     ["show", "plan"]], ids=lambda words: words[0])
def test_a_bucket_that_is_no_list_of_tables_is_refused(job, command):
    path = job([])
    path.write_text(path.read_text() + '[bucket]\nmax_length = 48\nstrategy = "1,2,1"\n')
    line = path.read_text().splitlines().index("[bucket]") + 1
    assert refusal([tiny.PROGRAM, *command, path]) == (f"{path}:{line}: bucket must be a list of tables: write "
                                                       "[[bucket]] with double brackets above each "
                                                       "bucket.")


@pytest.mark.parametrize("command", [["train"], ["plan", "--cluster", "demo"], ["simulate", "--cluster", "demo"],
                                     ["show", "plan"]], ids=lambda words: words[0])
@pytest.mark.parametrize("text, message", [
    ("[[run]]\nsteps = 1\n", "run is a list; a table is needed: write [run] with single brackets, once."),
    ('parallel = "full"\n', 'parallel = "full" is a string; a table is needed: write [parallel] above its keys.'),
    ("[[batch]]\ncontext = 48\n", "batch is a list; a table is needed: write [batch] with single brackets, once."),
    ("[buckets]\nmax_length = 48\n", "buckets is not a key. Did you mean bucket?")])
def test_a_section_of_another_kind_is_refused(job, command, text, message):
    path = job()
    name = text.strip("[").split("]")[0].split(" ")[0]
    lines = path.read_text().splitlines()
    kept, inside = [], False
    for line in lines:  # without the section itself, and for [buckets] without the buckets
        if line.startswith("["):
            inside = line in (f"[{name}]", f"[[{name[:-1]}]]")
        if not inside:
            kept.append(line)
    path.write_text(("" if text.startswith("[") else text) + "\n".join(kept) + "\n" +
                    (text if text.startswith("[") else ""))
    assert message in refusal([tiny.PROGRAM, *command, path])


def test_buckets_for_the_planner_have_no_settings_that_it_would_ignore(job):
    path = job([(48, "auto")])
    path.write_text(path.read_text() + 'file = "mine.json"\n')
    assert "bucket.0.file is set, but the strategies are left to the planner" in refusal(tiny.command(path))


# ---- names of folders


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\\", '"quoted"', "'single'", "with blank", "gr\u00fc\u00dfe \u2713",
                                  "a#b", "{x = 1}", "a\nb", "1", "true", "x]\n[run"])
def test_a_run_goes_to_exactly_the_folder_that_is_named(job, tmp_path, name):
    tiny.train(job(run={"steps": 1, "checkpoint_every": 1}), "--out", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["job.toml", name])
    report = tiny.run([tiny.PROGRAM, "report", tmp_path / name, "--out", tmp_path / name / "page.html"])
    assert report.returncode == 0, report.stderr  # job.toml was read back
    assert tiny.train(job(run={"steps": 2}), "--out", tmp_path / name, "--resume", tmp_path / name)[-1]["step"] == 2


def test_colours_are_for_terminals_where_nobody_asks_for_none(job):
    words = tiny.command(job())
    assert "\x1b[1m" in tiny.on_terminal(words)[1]
    assert "\x1b[1m" not in tiny.on_terminal(words, NO_COLOR="1")[1]
    assert "\x1b" not in tiny.run(words).stderr


def test_what_will_not_be_kept_is_told_first(job, tmp_path):
    """Before the first step."""
    assert tiny.run(tiny.command(job())).stderr.startswith(
        "nothing of this run will be kept, as it has no folder; --out DIR")
    told = tiny.run(tiny.command(job(), "--out", tmp_path / "run", "--set", "run.save_last=false")).stderr
    assert told.startswith("the model will not be kept when the run ends: run.save_last = false\n")
    assert not (tmp_path / "run" / "checkpoints").exists() or not list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_relative_folder_is_relative(job, tmp_path):
    result = tiny.run([*tiny.command(job(run={"steps": 1})), "--out", 'deep/a"b'], cwd=tmp_path)
    assert result.returncode == 0 and (tmp_path / "deep" / 'a"b' / "log.jsonl").exists(), result.stderr


def test_a_name_that_is_no_text_is_refused(job, tmp_path):
    words = [os.fsencode(str(word)) for word in tiny.command(job(), "--out")] + [os.fsencode(tmp_path) + b"/\xff"]
    result = subprocess.run(words, capture_output=True, env=tiny.ENVIRONMENT, timeout=tiny.HANG)
    assert result.returncode == USER_ERROR and b"the value of run.out is not UTF-8 text" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml"]


@pytest.mark.parametrize("words, name", [
    (["train", "JOB", "--out", ""], "--out"), (["train", "JOB", "--resume="], "--resume"),
    (["simulate", "JOB", "--cluster", "demo", "--report", ""], "--report"), (["export", "run", "--out", ""], "--out"),
    (["evaluate", "", "--data", "data"], "argument 2"), (["data", "prepare", "--input", "", "--out", "x"], "--input")])
def test_an_empty_name_is_refused(job, words, name):
    words = [str(job()) if word == "JOB" else word for word in words]
    assert refusal([tiny.PROGRAM, *words]) == f"{name} is empty. Give it a value, or leave it out."


@pytest.mark.parametrize("command", [["plan", "JOB", "--cluster", "demo", "--out"], ["profile", "--quick", "--out"],
                                     ["simulate", "JOB", "--cluster", "demo", "--trace"], ["report", "run", "--out"]])
def test_a_file_that_cannot_be_written_is_known_before_the_work(job, tmp_path, command):
    words, option = [str(job()) if word == "JOB" else word for word in command], command[-1]
    refused = refusal([tiny.PROGRAM, *words, tmp_path])
    assert refused == f"{option} {tmp_path}: this is a folder. Name a file."
    refused = refusal([tiny.PROGRAM, *words, tmp_path / "none/x"])
    assert refused == f"{option} {tmp_path}/none/x: there is no folder {tmp_path}/none. Make it, or name another file."


@pytest.mark.parametrize("command", [["train", "JOB", "--out"], ["simulate", "JOB", "--cluster", "demo", "--report"]])
def test_a_folder_that_cannot_be_made_is_refused_with_the_file_in_its_place(job, tmp_path, command):
    (tmp_path / "file").write_text("mine")
    words = [str(job()) if word == "JOB" else word for word in command]
    for name in ("file", "file/below"):
        assert refusal([tiny.PROGRAM, *words, name], cwd=tmp_path) == (
            f"cannot make folder {name}: file is not a folder. Name another path, or move that file away.")
    assert (tmp_path / "file").read_text() == "mine"


def test_too_many_ranks_are_refused_before_the_cluster_is_asked(job):
    expected = "--ranks 1000008: run.ranks = 1000008 must be at most 65536."
    given = ["--model", "7b", "--context", "4096", "--ranks", "1000008"]
    assert refusal([tiny.PROGRAM, "plan", "--cluster", "a100-80g", *given]) == expected
    assert refusal(tiny.command(job(), "--emulate", "a100-80g", "--ranks", "1000008")) == expected


def test_numbers_too_small_are_refused_with_what_is_needed(job):
    refused = refusal([tiny.PROGRAM, "plan", job(), "--cluster", "demo", "--ranks", "0"])
    assert refused.startswith("--ranks: 0 is not a whole number of at least 1.")


def test_options_replace_what_their_keys_exclude(job):
    path = job()
    path.write_text(path.read_text().replace("sequences = 8", "tokens = 100"))
    done = tiny.run([tiny.PROGRAM, "show", "batch", path, "--sequences", "3"])
    assert done.returncode == 0 and "3 documents" in done.stdout, done
    done = tiny.run([tiny.PROGRAM, "show", "model", path, "--model", "7b"])
    assert done.returncode == 0 and "4096" in done.stdout, done


# ---- numbers and words


@pytest.mark.parametrize("option, value, message", [("--steps", "-3", "--steps -3: run.steps = -3 must be at least 1."),
                                                    ("--steps", "0", "--steps 0: run.steps = 0 must be at least 1."),
                                                    ("--ranks", "-1", "--ranks -1: run.ranks = -1 must be at least 1."),
                                                    ("--ranks", "0", "--ranks 0: run.ranks = 0 must be at least 1.")])
def test_a_number_out_of_range_is_reported_with_its_option(job, option, value, message):
    assert refusal(tiny.command(job(), option, value)) == message


def test_a_number_that_is_larger_than_every_integer_is_reported_with_its_option(job):
    value = "99999999999999999999"
    assert refusal(tiny.command(job(), "--steps", value)) in (
        # CLI11 before 2.4 takes the largest integer instead.
        "--steps 9223372036854775807: run.steps = 9223372036854775807 must be at most 1000000000.",
        f"Could not convert: --steps = {value}. Use --help, also after a command, for a list of options.")


def test_a_run_that_is_beyond_its_last_step_is_reported_and_stays_as_it_is(finished):
    before = (finished / "run" / "log.jsonl").read_text()
    message = refusal([tiny.PROGRAM, "train", "job-file.toml", "--out", "run", "--resume", "run", "--steps", "1"],
                      cwd=finished)
    assert (message == "run.steps = 1, but --resume run goes on from step 2. Raise run.steps, or resume from an "
                       "earlier checkpoint.")
    assert (finished / "run" / "log.jsonl").read_text() == before and len(before.splitlines()) == 2


def files_of(folder):
    """Without that which names who used the folder last."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_a_run_that_has_all_its_steps_says_so_and_stays_as_it_is(finished, ranks):
    before = files_of(finished / "run")
    words = [tiny.PROGRAM, "train", "job-file.toml", "--out", "run", "--resume", "run"]
    said = "run has all 2 steps already; raise --steps (run.steps) to go on\n"
    if ranks == "threads":
        result = tiny.run(words, cwd=finished)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", said)
    else:
        processes = tiny.start_ranks([words] * 2, cwd=finished)
        ends = [(*process.communicate(timeout=tiny.HANG), process.returncode) for process in processes]
        assert ends == [("", said, 0), ("", "", 0)]
    assert files_of(finished / "run") == before


MISTAKES = [(["train", "--stepz", "3"], "--stepz"), (["train", "--steps"], "--steps"),
            (["train", "--steps", "three"], "--steps"),
            (["train", "--steps", "1e3"], "--steps"), (["trian"], "trian"), (["bench", "stepp"], "stepp"),
            (["plan", "job.toml"], "--cluster"), (["show", "nothing", "job.toml"], "nothing"),
            (["show"], "show needs one of model, strategy, plan, batch and program"),
            (["show", "model", "--model", "nothere"],
             "--model nothere: there is no folder nothere, and no preset is called so."),
            (["switch-plan", "--model", "nothere", "--cluster", "1x2", "--from", "1,1,1", "--to", "1,2,1"],
             "--model nothere: there is no folder nothere, and no preset is called so."),
            (["export", "run", "--out", "x", "--step", "99999999999999999999"], "99999999999999999999 is too large"),
            (["schedule", "--kind", "none"], "none"),
            (["schedule", "--stages", "0"], "0"), (["plan", "job.toml", "--cluster", "demo", "--top", "-1"], "-1"),
            (["simulate"], "--cluster"), (["simulate", "--cluster", "demo"], "no job file"), (["data"], "subcommand"),
            (["data", "stats"], "dir"), (["verify", "--ranks", "x", "folder"], "--ranks"),
            (["verify", "--ranks", "0", "folder"], "--ranks"),
            (["profile", "--ranks", "-1"], "-1"), ([], "subcommand")]


@pytest.mark.parametrize("words, culprit", MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list)
                         else None)
def test_a_mistake_on_the_command_line_ends_with_2_and_its_name(words, culprit):
    assert culprit in refusal([tiny.PROGRAM, *words])


def test_help_and_version_end_with_0():
    for words in (["--help"], ["--version"], ["train", "--help"], ["schedule", "--help"],
                  ["data", "prepare", "--help"]):
        result = tiny.run([tiny.PROGRAM, *words])
        assert result.returncode == 0 and result.stdout and result.stderr == "", result


@pytest.mark.parametrize("words", [["--times", "1e308,1e308,1e308"], ["--times", "1e400,1,1"],
                                   ["--times", "nan,1,1"], ["--times", "1,inf,1"], ["--times", "1,1,-1"],
                                   ["--times", "1,1"], ["--times", "1,1,1,1"], ["--times", "1,1,1", "--send", "nan"],
                                   ["--send", "inf"], ["--send", "-1"], ["--send", "1e308"],
                                   ["--stages", "4096", "--micro-batches", "65536"]], ids=" ".join)
@pytest.mark.parametrize("kind", ["1f1b", "zero-bubble", "zb-v"])
def test_times_of_a_schedule_that_no_stage_has_are_refused(words, kind):
    assert words[-2] in refusal([tiny.PROGRAM, "schedule", "--kind", kind, *words], timeout=tiny.HANG)


@pytest.mark.parametrize("times", ["0,0,0", "1e-300,1e-300,1e-300", "1e15,1e-300,0", "1e15,1e15,1e15", "5e-324,1,1e15"])
@pytest.mark.parametrize("kind", ["1f1b", "interleaved", "zero-bubble", "zb-v"])
def test_times_of_a_schedule_may_differ_by_any_factor(kind, times):
    result = tiny.run([tiny.PROGRAM, "schedule", "--kind", kind, "--times", times, "--json"], timeout=tiny.HANG)
    assert result.returncode == 0 and json.loads(result.stdout.splitlines()[-1])["makespan"] >= 0, result.stderr


BEYOND_SENSE = [
    (["--ranks", "1000000"], "run.ranks = 1000000 must be at most 65536"),
    (["--set", "run.threads=1000000"], "run.threads = 1000000 must be at most 1024"),
    (["--ranks", "60000"], "60000 ranks of 1 thread each: this process would start more than 1024 threads."),
    (["--set", "run.threads=1000"], "2 ranks of 1000 threads each: this process would start more than 1024 threads."),
    (["--set", "model.hidden_size=1000000000"], "model.hidden_size = 1000000000"),
    (["--set", "model.layers=1000000"], "model.layers = 1000000"),
    (["--set", "model.vocab_size=1000000000000"], "model.vocab_size"),
    (["--set", "batch.sequences=1000000000"], "batch.sequences = 1000000000"),
    (["--set", "batch.context=1000000000"], "batch.context = 1000000000"),
    (["--set", "bucket.0.max_length=1000000000"], "bucket.0.max_length"),
    (["--set", "model.hidden_size=1048576", "--set", "model.ffn_size=16777216", "--set", "model.layers=2048",
      "--set", "model.heads=4096", "--set", "model.kv_heads=4096"], "parameters, which is out of range"),
    (["--set", "model.layers=2048", "--set", "batch.context=16777216", "--set", "bucket.0.max_length=16777216",
      "--set", "batch.sequences=200000"], "bytes, which is out of range")]


def limited(megabytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


@pytest.mark.parametrize("words, message", BEYOND_SENSE,
                         ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_what_is_beyond_sense_is_refused_before_anything_is_taken(job, words, message):
    assert message in refusal(tiny.command(job(), *words), timeout=tiny.HANG, preexec_fn=limited(4096))


OTHERS = [["bench", "step", "--ranks", "100000"], ["bench", "step", "--ranks", "0"],
          ["bench", "step", "--threads", "1000000"], ["bench", "step", "--seq", "1000000000000"],
          ["bench", "step", "--batch", "1000000000000"], ["bench", "step", "--lengths", "4096x"],
          ["bench", "step", "--lengths", "1x9999999999"], ["bench", "step", "--lengths", "16777216x1048576"],
          ["bench", "step", "--lengths", "9", "--seq", "9"], ["bench", "switch", "--ranks", "100000"],
          ["bench", "kernels", "--tokens", "1000000000000"],
          ["bench", "kernels", "--threads", "1000000"], ["profile", "--ranks", "1000000"],
          ["profile", "--ranks", "2", "--threads", "1000000"],
          ["bench", "step", "--hidden", "1000000000"]]


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_other_commands_refuse_it_as_well(words):
    refusal([tiny.PROGRAM, *words], timeout=tiny.HANG, preexec_fn=limited(4096))


@pytest.mark.parametrize("words", [["plan", "--seconds", "nan"], ["plan", "--seconds", "inf"],
                                   ["plan", "--seconds", "-1"], ["plan", "--steps", "1000000000"],
                                   ["simulate", "--steps", "1000000000"], ["plan", "--top", "1000000000"]],
                         ids=" ".join)
def test_counts_of_predictions_are_bounded(job, words):
    assert words[1] in refusal([tiny.PROGRAM, words[0], job(), "--cluster", "demo", *words[1:]], timeout=tiny.HANG)


# ---- the environment


@pytest.mark.parametrize("variables, culprit", [({"WORLD_SIZE": "2"}, "RANK is missing"),
                                                ({"RANK": "0"}, "WORLD_SIZE is missing"),
                                                ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                  "MASTER_PORT": "0"}, "MASTER_PORT = 0"),
                                                ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                  "MASTER_PORT": "99999"}, "MASTER_PORT = 99999"),
                                                ({"RANK": "-1", "WORLD_SIZE": "2"}, 'RANK = "-1"'),
                                                ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE = 0")])
def test_a_mistake_in_the_environment_ends_with_2_and_its_name(job, variables, culprit):
    assert culprit in refusal(tiny.command(job()), environment=tiny.ENVIRONMENT | variables)


# ---- standard output


def ends_on(words, redirection, environment=tiny.ENVIRONMENT, **options):
    """A shell's redirection of standard output; the exit status, and what was said."""
    return subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "sh", *map(str, words)], capture_output=True,
                          text=True, env=environment, timeout=tiny.HANG, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus):
    out = tmp_path_factory.mktemp("finished")
    path = tiny.write_job(out / "job-file.toml", corpus, BUCKETS, run={"steps": 2, "checkpoint_every": 2})
    tiny.train(path, "--out", out / "run")
    (out / "text.txt").write_text("some text\n")
    return out


PRINTING = {"version": ["--version"], "help": ["--help"], "help of train": ["train", "--help"],
            "help of keys": ["train", "--help-keys"],
            "model": ["show", "model", "job-file.toml"], "plan": ["show", "plan", "job-file.toml"],
            "program": ["show", "program", "job-file.toml"], "batch": ["show", "batch", "job-file.toml"],
            "strategy": ["show", "strategy", "job-file.toml"],
            "simulate": ["simulate", "job-file.toml", "--cluster", "demo", "--json"],
            "planner": ["plan", "job-file.toml", "--cluster", "demo"],
            "report": ["report", "run", "--out", "page.html"], "schedule": ["schedule"],
            "much": ["schedule", "--micro-batches", "3000"],
            "switch": ["switch-plan", "--model", "7b", "--cluster", "1x2", "--from", "1,2,1", "--to", "2,1,1"],
            "stats": ["data", "stats", "CORPUS"], "prepare": ["data", "prepare", "--input", "text.txt",
                                                              "--tokenizer", "train:257", "--out", "prepared"],
            "help of prepare": ["data", "prepare", "--help"],
            "bench": ["bench", "switch", "--hidden", "32", "--heads", "4", "--kv-heads", "2", "--ffn",
                      "48", "--vocab", "64", "--layers", "2", "--ranks", "2",
                      "--from", "1,2,1", "--to", "2,1,1", "--repetitions", "1"]}


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"], ids=["full", "closed"])
@pytest.mark.parametrize("name", PRINTING)
def test_standard_output_that_cannot_be_written_is_a_failure(finished, corpus, name, redirection):
    words = [str(corpus) if word == "CORPUS" else word for word in PRINTING[name]]
    result = ends_on([tiny.PROGRAM, *words], redirection, cwd=finished)
    assert result.returncode == CLUSTER_ERROR, result
    assert ("cannot write to standard output: " in result.stderr and "internal error" not in result.stderr
            and "Traceback" not in result.stderr)


def test_an_export_whose_folder_cannot_be_printed_says_that_it_is_complete(finished):
    result = ends_on([tiny.PROGRAM, "export", "run", "--out", "whole"], ">/dev/full", cwd=finished)
    assert result.returncode == CLUSTER_ERROR
    assert result.stderr.endswith("switchyard: cannot write to standard output: No space left on device. The model in "
                                  "whole is complete.\n"), result.stderr
    assert (finished / "whole" / "config.json").exists()


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["plan", "--help"]], ids=" ".join)
def test_help_and_version_say_why_they_cannot_be_printed(words):
    result = ends_on([tiny.PROGRAM, *words], ">/dev/full")
    assert result.returncode == CLUSTER_ERROR, result
    assert "cannot write to standard output: No space left on device." in result.stderr, result.stderr


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"], ids=["full", "closed"])
def test_data_preparation_by_itself_fails_as_well(finished, redirection):
    words = [sys.executable, "-m", "switchyard_data", "prepare", "--input", "text.txt", "--tokenizer",
             "train:257", "--out", "alone"]
    result = ends_on(words, redirection, tiny.ENVIRONMENT | {"PYTHONPATH": str(tiny.ROOT / "python")}, cwd=finished)
    assert (result.returncode == CLUSTER_ERROR and "switchyard: cannot write to standard output: " in result.stderr
            and "Traceback" not in result.stderr), result


def test_files_do_not_get_the_descriptor_of_closed_output(job, tmp_path):
    """Training prints nothing to standard output, so it may be closed; no file may receive other output."""
    result = ends_on(tiny.command(job(run={"steps": 2, "checkpoint_every": 1}), "--out", tmp_path / "out"),
                     ">&- 2>&- <&-")
    assert result.returncode == 0
    assert [entry["step"] for entry in tiny.read_log(tmp_path / "out")] == [1, 2]


@pytest.mark.parametrize("words, status", [(["nonsense"], USER_ERROR), (["--version"], 0),
                                           (["plan", "job-file.toml", "--cluster", "demo"], 0),
                                           (["train", "job-file.toml", "--out", "silent"], 0),
                                           (["export", "run/link", "--out", "model"], USER_ERROR)],
                         ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_messages_that_cannot_be_printed_are_lost_and_change_nothing(finished, words, status):
    if not (finished / "run/link").is_symlink():
        (finished / "run/link").symlink_to("link")
    often = tiny.ENVIRONMENT | {"SWITCHYARD_PROGRESS": "0.001"}
    assert ends_on([tiny.PROGRAM, *words], "2>/dev/full", often, cwd=finished).returncode == status


def test_a_path_that_cannot_be_looked_at_is_no_internal_error(finished):
    (finished / "circle").symlink_to("circle")
    for words in (["export", "circle", "--out", "model"], ["report", "circle"],
                  ["train", "job-file.toml", "--resume", "circle", "--out", "further"]):
        message = refusal([tiny.PROGRAM, *words], cwd=finished)
        assert message.startswith("cannot read circle") and message.endswith("Name another path."), message


@pytest.mark.parametrize("words", [["plan", "--out"], ["simulate", "--trace"]], ids=" ".join)
def test_a_file_that_cannot_be_written_whole_keeps_what_it_had(finished, tmp_path, words):
    file = tmp_path / "result"
    file.write_text("of an earlier one")
    small = tiny.run([tiny.PROGRAM, words[0], "job-file.toml", "--cluster", "demo", words[1], file], cwd=finished,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    assert small.returncode == CLUSTER_ERROR and f"cannot write {file}: File too large" in small.stderr, small
    assert file.read_text() == "of an earlier one" and list(tmp_path.iterdir()) == [file]


# ---- --json


@pytest.mark.parametrize("name", ["simulate", "planner", "schedule", "switch", "stats", "bench"])
def test_with_json_nothing_is_printed_on_standard_error(finished, corpus, name):
    words = [str(corpus) if word == "CORPUS" else word for word in PRINTING[name]]
    result = tiny.run([tiny.PROGRAM, *words, *([] if "--json" in words else ["--json"])], cwd=finished)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert isinstance(json.loads(result.stdout.splitlines()[-1]), dict)
