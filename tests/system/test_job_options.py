"""Options that stand for a job file: one grammar for plan, simulate, show and switch-plan; switch-plan's clusters."""

import json
import re
import shlex
import subprocess

import pytest
import tiny_runs as tiny

OPTIONS = ["--model", "7b", "--context", "4096", "--sequences", "16"]
STRATEGY = "to 4096: 2,4,1; to 1024: dp=8,zero=2"
CLUSTER = ["--cluster", "h100-80g"]


def run(*words):
    result = tiny.run([tiny.PROGRAM, *words])
    assert result.returncode == 0, result.stderr
    return result.stdout


def figures(*words):
    return json.loads(run(*words, "--json").splitlines()[-1])


def refusal(*words):
    result = tiny.run([tiny.PROGRAM, *words])
    assert result.returncode == 2 and result.stdout == "", result
    return result.stderr


@pytest.fixture
def lengths(tmp_path):
    path = tmp_path / "lengths.json"
    path.write_text(json.dumps({"bins": [[20, 1000, 9], [2000, 4097, 1]]}))
    return path


@pytest.fixture
def job(tmp_path, lengths):
    """The same as the options say."""
    path = tmp_path / "same.toml"
    path.write_text(f"""[model]
preset = "7b"
[batch]
sequences = 16
context = 4096
lengths = "{lengths}"
[run]
precision = "bf16"
ranks = 8
[[bucket]]
max_length = 4096
strategy = "2,4,1"
[[bucket]]
max_length = 1024
strategy = "dp=8,zero=2"
""")
    return path


def test_options_say_the_same_as_a_file(job, lengths):
    options = [*OPTIONS, "--lengths", lengths]
    assert figures("simulate", *options, "--strategy", STRATEGY, *CLUSTER) == figures("simulate", job, *CLUSTER)
    assert figures("plan", *options, "--ranks", 8, *CLUSTER)["chosen"] == figures("plan", job, *CLUSTER)["chosen"]
    for what in ("model", "plan", "batch", "program", "strategy"):
        assert run("show", what, *options, "--strategy", STRATEGY) == run("show", what, job)


def test_options_change_a_file(job):
    changed = figures("simulate", job, *CLUSTER, "--sequences", 8, "--strategy", "8,1,1", "--set", "batch.sequences=8")
    assert changed == figures("simulate", job, *CLUSTER, "--strategy", "8,1,1", "--set", "batch.sequences=8")
    assert changed["step_seconds"] != figures("simulate", job, *CLUSTER)["step_seconds"]


def test_without_a_file_steps_have_512_documents_as_long_as_the_context():
    whole = run("show", "plan", "--model", "7b", "--context", "1024", "--strategy", "8,1,1")
    assert "which has 512 documents" in whole
    one = figures("simulate", "--model", "7b", "--context", "1024", "--strategy", "8,1,1", *CLUSTER)
    assert one == figures("simulate", *OPTIONS[:2], "--context", "1024", "--sequences", "512", "--strategy", "8,1,1",
                          *CLUSTER)


def test_a_folder_is_a_model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 96,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False}))
    shown = run("show", "model", "--model", folder)
    assert "in a document of 256 tokens" in shown and "layer 0 to 2, each" in shown


WIDE = ["--model", "7b", "--ranks", "64", "--context", "32768", "--strategy",
        "dp=2,tp=2,ring=2,ulysses=2,pp=2,depth=2,zero=2,schedule=interleaved"]


@pytest.mark.parametrize("words", [
    ["show", "model"], ["show", "plan"], ["show", "batch"], ["show", "plan", *WIDE], ["show", "batch", *WIDE],
    ["show", "model", "--model", "llama3-70b", "--context", "131072"]], ids=lambda words: "-".join(words[1:4]))
def test_tables_fit_100_columns(job, words):
    for line in run(*words, *([] if "--model" in words else [job])).splitlines():
        assert len(line) <= 100, line


def test_wide_tables_have_their_figures_and_name_all_ranks():
    shown = run("show", "plan", *WIDE)
    assert re.search(r"^32768 +interleaved +gathers +32768 +64\n +dp=2,tp=2,pp=2,ring=2,ulysses=2,depth=2,zero=2,"
                     r"schedule=interleaved$", shown, re.M), shown
    assert "; no memory budget\n" in shown
    [groups] = re.findall(r"^ranks((?: +group \d+)+)$", shown, re.M)
    listed = re.findall(r"^group (\d+): ranks (.*)$", shown, re.M)
    assert [number for number, _ in listed] == re.findall(r"\d+", groups)
    ranks = [rank for _, text in listed for part in text.split(",") for low, _, high in [part.partition("..")]
             for rank in range(int(low), int(high or low) + 1)]
    assert sorted(ranks) == list(range(64))
    model = run("show", "model", "--model", "llama3-70b", "--context", "131072")
    assert re.search(r"^all +70\.6B +131 GiB +100\.0%$", model, re.M) and "723 parameters of 70.6B elements" in model
    assert re.search(r"^  lm_head.weight +\[128256,8192\] +1\.05B alignment", model, re.M), model


def test_show_plan_names_settings_and_what_a_micro_batch_may_hold(job):
    shown = run("show", "plan", job, "--set", "parallel.micro_batch_sequences=3", "--set", "parallel.zero=3",
                "--set", "parallel.packing=stream", "--set", "bucket.1.strategy={dp = 8, packing = \"balanced\"}")
    rows = re.findall(r"^(\d+) +\S+ +\S+ +(\d+) +8(?:    |\n +)(.*)$", shown, re.M)
    assert rows == [("4096", "12288", "dp=2,tp=4,zero=3,micro_batch_sequences=3,packing=stream"),
                    ("1024", "3072", "dp=8,zero=3,micro_batch_sequences=3")], shown


def test_show_plan_has_shards_where_they_are_asked_for(job):
    assert "model.layers.0.mlp.up_proj.weight" not in run("show", "plan", job)
    assert "model.layers.0.mlp.up_proj.weight" in run("show", "plan", job, "--shards")


@pytest.mark.parametrize("words, message", [
    (["plan", *CLUSTER], "there is no job file, and --model and --context are missing. Name a file, such as "
                         "demo/job.toml, or give --model and --context."),
    (["simulate", "--model", "7b", "--context", "64", *CLUSTER], "there is no job file, and --strategy is missing."),
    (["show", "plan", "--model", "7b"], "--context and --strategy are missing"),
    (["show", "model"], "--model"),
    (["simulate", "--model", "7b", "--context", "64", "--strategy", "to x: 1,1,1", *CLUSTER],
     '--strategy: "to x: 1,1,1" is not understood.'),
    (["simulate", "--model", "7b", "--context", "64", "--strategy", "1,1", *CLUSTER], "--strategy 1,1"),
    (["simulate", "--model", "7q", "--context", "64", "--strategy", "1,1,1", *CLUSTER], "--model 7q"),
    (["plan", "--model", "7b", "--context", "64", "--cluster", "2x8"], "such as h200-141g:2x8"),
    (["switch-plan", "--from", "2,1,1", "--to", "1,2,1", "--cluster", "1x2"],
     "there is no job file, and --model is missing. Name a file, such as demo/job.toml, or give --model."),
    (["show", "plan", "--model", "7b", "--context", "64", "--cluster", "2x8", "--set", "run.memory_budget=8 GiB"],
     "To find one: switchyard plan --model 7b --context 64 --set 'run.memory_budget=8 GiB' --cluster NAME:2x8\n"),
    (["show", "plan", "--model", "7b", "--context", "64"],
     "To find one: switchyard plan --model 7b --context 64 --cluster NAME --ranks N\n"),
    (["simulate", "--model", "7b", "--context", "64", *CLUSTER], f"{' '.join(CLUSTER)} --ranks N\n"),
])
def test_what_is_missing_or_wrong_is_named(words, message):
    assert message in refusal(*words)


def test_without_a_strategy_the_command_that_finds_one_is_named(tmp_path):
    options = ["--model", "7b", "--ranks", "8", "--context", "4096", "--sequences", "16"]
    for words in (["simulate", *options, *CLUSTER], ["show", "plan", *options, *CLUSTER]):
        named = shlex.split(refusal(*words).strip().split(" To find one: ")[1])
        assert named == ["switchyard", "plan", *OPTIONS, "--ranks", "8", *CLUSTER]
    run(*named[1:], "--seconds", "1")


def test_switch_plan_takes_the_options_of_a_job(job, lengths):
    switch = ["switch-plan", "--from", "2,4,1", "--to", "8,1,1", "--cluster", "2x4"]

    def sent(*words):
        return {key: value for key, value in figures(*switch, *words).items() if not key.endswith("ing_seconds")}

    plain = sent("--model", "7b")
    assert sent("--model", "7b", "--context", "8192", "--lengths", lengths) == sent(job) == plain
    assert sent("--model", "7b", "--set", "model.vocab_size=1024")["intra_host_bytes"] < plain["intra_host_bytes"]
    assert sent(job, "--set", "run.precision=fp32") == sent(job, "--precision", "fp32") != plain
    assert re.match(r"same in bf16, 2 hosts, 8 ranks: ", run(*switch, job))


def test_a_switch_is_timed_where_rates_are_known(tmp_path):
    switch = ["switch-plan", "--model", "7b", "--from", "2,4,2", "--to", "4,4,1"]
    hosts = tmp_path / "hosts"
    hosts.write_text("alpha slots=8\nbeta slots=8\n")
    plain = figures(*switch, "--cluster", "2x8")
    timed = figures(*switch, "--cluster", "h100-80g")  # the strategies need 16 ranks
    assert plain["seconds"] is None and timed["seconds"] > 0
    assert plain["inter_host_bytes"] == timed["inter_host_bytes"]
    assert figures(*switch, "--cluster", f"h100-80g:{hosts}")["seconds"] == timed["seconds"]
    slower = figures(*switch, "--cluster", "a800-80g:2x8")["seconds"]
    assert slower > timed["seconds"]
    nic = 8 * 25e9  # bytes a second of a host with a800-80g's adapters, at most
    assert slower > plain["inter_host_bytes"] / nic
    assert re.match(r"Switch in [\d.]+ ms on h100-80g\n", run(*switch, "--cluster", "h100-80g"))
    assert "name a cluster, such as h100-80g:2x8" in run(*switch, "--cluster", "2x8")


@pytest.mark.parametrize("words", [["plan", "--seconds", "0"], ["simulate", "--strategy", "2,4,2"],
                                   ["show", "plan", "--strategy", "2,4,2"],
                                   ["switch-plan", "--from", "2,4,2", "--to", "4,4,1"]],
                         ids=lambda words: words[0])
def test_hosts_come_from_a_hostfile(words, tmp_path):
    """Hosts are those that numbers would give; with a hostfile of other hosts, ranks are missing."""
    hosts = tmp_path / "hosts"
    hosts.write_text("alpha slots=8\nbeta slots=8\n")
    words += ["--model", "7b"] + ([] if words[0] == "switch-plan" else ["--context", "4096"])
    def cut(text):
        return re.sub(r"[\d.]+ (s|ms|us)\b|h100-80g\S*", "", text).split()

    assert cut(run(*words, "--cluster", f"h100-80g:{hosts}")) == cut(run(*words, "--cluster", "h100-80g:2x8"))
    hosts.write_text("alpha slots=8\n")
    if words[0] != "plan":  # plans for what there is
        assert "16" in refusal(*words, "--cluster", f"h100-80g:{hosts}")


def test_a_person_who_waits_is_told_what_goes_on():
    """On a terminal, from the third second on."""
    words = [tiny.PROGRAM, "plan", "--model", "7b", "--context", "65536", "--lengths", "commoncrawl", "--cluster",
             "h100-80g", "--ranks", "64", "--seconds", "4", "--top", "1"]
    status, said = tiny.on_terminal(words)
    assert status == 0 and re.match(r"\rplan: (searching|simulating) [\w ()]+, 2 s", said), said
    assert said.endswith(" \r"), "the line is erased"


def test_show_says_what_goes_on_until_it_prints():
    words = [tiny.PROGRAM, "show", "plan", "--model", "7b", "--context", "4096", "--cluster", "h100-80g",
             "--ranks", "64", "--strategy", "64,1,1", "--sequences", "64"]
    result = tiny.run(words, environment=tiny.ENVIRONMENT | {"SWITCHYARD_PROGRESS": "0.001"})
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"(show: planning transfers, \d+ s\n)+(show: assembling step 1, \d+ s\n)+", result.stderr)
    assert "each rank may use 76." in result.stdout and re.search(r"reached in +bucket 0\n", result.stdout)


def test_elsewhere_lines_say_how_far_it_is_unless_there_is_json():
    words = [tiny.PROGRAM, "plan", "--model", "7b", "--context", "65536", "--lengths", "commoncrawl", "--cluster",
             "h100-80g", "--ranks", "16", "--seconds", "1"]
    for json_too, pattern in [([], r"(plan: (reading|searching|simulating)[^,]*, \d+ s\n)+"), (["--json"], "")]:
        result = tiny.run([*words, *json_too], environment=tiny.ENVIRONMENT | {"SWITCHYARD_PROGRESS": "0.001"})
        assert result.returncode == 0 and re.fullmatch(pattern, result.stderr), result.stderr
