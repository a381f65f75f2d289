"""Errors in a job, its files or its ranks give one message with place and remedy. Exit codes: apps/main.cpp."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest
import safetensors.torch
import tiny_runs as tiny
import torch
from transformers import AutoModelForCausalLM, MistralConfig

USER_ERROR, CLUSTER_ERROR = 2, 3
BUCKETS = [(48, "1,2,1"), (20, "2,1,1")]
NEVER_DONE = 100000
needs_mpi = pytest.mark.skipif(not tiny.MPI, reason="this build has no MPI")


def message_of(result, code):
    """The last output on standard error: only a run's banner and progress come before it."""
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    while lines and not lines[0].startswith("switchyard"):
        lines.pop(0)
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    speaker = lines and re.match(r"switchyard(, rank \d+)?: ", lines[0])
    assert speaker and all(line.startswith("  ") for line in lines[1:]), result.stderr
    return "\n".join(lines)[speaker.end():]


def fails(words, code=USER_ERROR, **options):
    return message_of(tiny.run(words, **options), code)


@pytest.fixture
def job(tmp_path, corpus):
    """Writes a job file that can train, with the changes of the test."""
    return lambda buckets=BUCKETS, corpus=corpus, **changes: tiny.write_job(tmp_path / "job.toml",
                                                                            corpus, buckets, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus):
    """A run of 4 steps with checkpoints of steps 2 and 4."""
    out = tmp_path_factory.mktemp("finished")
    tiny.train(tiny.write_job(out / "job.toml", corpus, BUCKETS, run={"steps": 4, "checkpoint_every": 2}), "--out", out)
    return out


def checkpoint(out, step):
    return out / "checkpoints" / f"step-{step:08}"


# ---- the job file


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has a CUDA device")
def test_a_device_that_is_not_there_is_refused_before_ranks_start(job):
    text = fails(tiny.command(job(), "--set", "run.device=cuda"))
    assert text.startswith('run.device = "cuda": this process has no CUDA device') and "Use \"cpu\"" in text
    assert "run.device" in fails([tiny.PROGRAM, "profile", "--quick", "--cuda", "--ranks", "1"])


def test_an_unknown_key_is_answered_with_the_nearest_known_one(job):
    path = job(optimizer={"warmup_step": 3})
    line = path.read_text().splitlines().index("warmup_step = 3") + 1
    assert fails(tiny.command(path)) == (f"{path}:{line}: optimizer.warmup_step is not a key. "
                                         "Did you mean optimizer.warmup_steps?")


def test_an_unknown_key_of_the_command_line_is_reported_with_its_override(job):
    expected = "--set run.stepz=3: run.stepz is not a key. Did you mean run.steps?"
    assert fails(tiny.command(job(), "--set", "run.stepz=3")) == expected


def test_a_value_of_the_wrong_type_is_reported_with_the_type_that_is_wanted(job):
    message = fails(tiny.command(job(run={"steps": "many"})))
    assert message.endswith('run.steps = "many" is a string; an integer is needed.')


def test_all_errors_of_a_job_come_in_one_message(job):
    message = fails(tiny.command(job(run={"steps": 0, "precision": "fp8"}, batch={"context": "long"})))
    assert message.startswith("3 errors in the job:\n")
    assert all(key in message for key in ("run.steps = 0", 'run.precision = "fp8"', 'batch.context = "long"'))


def test_a_strategy_for_more_ranks_than_the_run_has_is_refused(job):
    message = fails(tiny.command(job([(48, "1,2,2")], run={"ranks": 2})))
    assert message.endswith('bucket.0: strategy "1,2,2" needs 2 x 2 ranks, but the run has 2. '
                            "Use degrees whose product is at most 2, or raise run.ranks.")


def test_axes_that_cannot_divide_the_heads_are_refused_with_the_reason(job):
    message = fails(tiny.command(job([(48, "1,3,1")])))
    assert "groups[0].stages[0].mesh (outer=3) can't divide 4 heads with 2 key/value heads." in message
    assert message.endswith("Use outer (tp / inner) = 2 or 4.")


def test_bucket_bounds_that_do_not_decrease_are_refused(job):
    message = fails(tiny.command(job([(48, "1,1,1"), (49, "1,1,1")])))
    assert message.endswith("bucket.1.max_length = 49 is above that of bucket.0, 48. List buckets from the longest to "
                            "the shortest.")
    message = fails(tiny.command(job([(48, "1,1,1"), (48, "1,1,1")])))
    assert message.endswith("bucket.1.max_length = 48 is also that of bucket.0. Give each bucket another one, or set "
                            "run.choose_buckets = true, so that each step uses the quicker of them.")


def test_documents_without_a_bucket_are_refused(job):
    message = fails(tiny.command(job([(40, "1,1,1")])))
    assert message.endswith("bucket.0.max_length = 40 is below batch.context = 48: documents of 41 to 48 tokens have "
                            "no bucket. "
                            "Raise it to 48, or lower the context.")


def test_a_strategy_file_with_a_wrong_value_is_reported_with_its_place(job, tmp_path):
    strategy = tmp_path / "mine.json"
    strategy.write_text(json.dumps(
        {"groups": [{"stages": [{"ranks": [0], "mesh": {"outer": "1"}, "layers": [0, 4]}]}]}))
    message = fails(tiny.command(job([(48, strategy)])))
    assert f'{strategy}: groups[0].stages[0].mesh.outer is "1"; a whole number is needed.' in message


@pytest.mark.parametrize("command", ["train", "simulate", "plan", "show plan"])
def test_a_strategy_file_without_stages_is_refused(job, tmp_path, command):
    strategy = tmp_path / "empty.json"
    strategy.write_text('{"groups": [{"stages": []}]}')
    path = job([(48, strategy)])
    cluster = ["--cluster", "h100-80g:1x1"] if command in ("simulate", "plan") else []
    assert fails([tiny.PROGRAM, *command.split(), path, *cluster]).endswith(
        f'bucket.0: strategy "{strategy}": groups[0].stages is empty. Give at least one stage.')


def test_an_order_written_by_hand_that_deadlocks_is_reported_with_its_cycle(job, tmp_path):
    strategy = tmp_path / "stuck.json"
    stages = [{"ranks": [0], "layers": [0, 2]}, {"ranks": [1], "layers": [2, 4]}]
    order = {"micro_batches": 2, "stages": ["F0 BW0 F1 BW1", "F1 F0 BW0 BW1"]}
    strategy.write_text(json.dumps({"groups": [{"stages": stages}], "order": order}))
    message = fails(tiny.command(job([(48, strategy)])))
    assert message.endswith(f"{strategy}: order.stages can't run: schedule: the order deadlocks: stage 1 at F1 waits "
                            "for F1 of stage 0; "
                            "stage 0 at BW0 waits for BW0 of stage 1. Fix the order of the items.")


SPLIT = "or give the strategy's bucket more ranks per replica"


@pytest.mark.parametrize("budget, settings, where, ways", [
    (600, {}, "", "or use more ranks"),
    (900, {}, ' under strategy "2,1,1"', f'set recompute = "full", {SPLIT}'),
    (900, {"micro_batch_tokens": 96, "recompute": "full"},
     ' under strategy "dp=2,recompute=full,micro_batch_tokens=96"',
     f"set a smaller micro_batch_tokens, {SPLIT}"),
    (900, {"recompute": "full"}, ' under strategy "dp=2,recompute=full"', SPLIT),
], ids=["for the state", "for a step", "for a step with large micro-batches", "for a step that can't be smaller"])
def test_a_budget_that_is_too_small_is_reported_before_the_step_with_the_largest_class(job, tmp_path, budget, settings,
                                                                                      where, ways):
    message = fails(tiny.command(job(run={"memory_budget": f"{budget} KiB"}, parallel=settings), "--out",
                                 tmp_path / "out"))
    found = re.fullmatch(r"step 1: rank \d needs ([\d.]+) (KiB|MiB)(.*), ([\d.]+) KiB more than the memory budget\. "
                         rf'Most of it: moments\. In all .*\. Raise run\.memory_budget = "{budget} KiB", {ways}\.',
                         message)
    assert found and found[3] == where, message
    needed = float(found[1]) * {"KiB": 1, "MiB": 1024}[found[2]]
    assert needed - float(found[4]) == pytest.approx(budget, abs=6)  # both are rounded to three digits
    log = tmp_path / "out" / "log.jsonl"
    assert not log.exists() or log.read_text() == ""


def test_no_rank_exceeds_the_budget_of_a_run_that_fits(job, tmp_path):
    log = tiny.train(job(run={"memory_budget": "2 MiB"}), "--out", tmp_path / "out")
    assert max(max(entry["peak_bytes_per_rank"]) for entry in log) <= 2 << 20


def test_an_option_and_a_set_that_give_a_key_two_values_are_refused(job):
    assert fails(tiny.command(job(), "--steps", 3, "--set", "run.steps=4")) == (
        "--steps 3: --set run.steps=4 gives run.steps another value. Keep one of them.")
    simulated = [tiny.PROGRAM, "simulate", str(job()), "--cluster", "h100-80g", "--set", "batch.sequences=4"]
    assert fails([*simulated, "--sequences", 5]) == (
        "--sequences 5: --set batch.sequences=4 gives batch.sequences another value. Keep one of them.")
    assert tiny.run([*simulated, "--sequences", 4]).returncode == 0


def test_a_file_that_never_ends_is_refused(job, tmp_path):
    told = "/dev/zero has more than 64 MiB, the most that such a file may have. Check the path."
    assert fails(tiny.command("/dev/zero")) == told
    assert fails([tiny.PROGRAM, "simulate", job(), "--cluster", "/dev/zero"]) == told
    assert fails(tiny.command(job(), "--set", 'bucket=[{max_length = 48, file = "/dev/zero"}]')).endswith(told)
    lengths = job(batch={"lengths": "/dev/zero"})
    assert fails([tiny.PROGRAM, "simulate", lengths, "--cluster", "demo"]) == told


def test_a_job_may_come_from_a_pipe(job, tmp_path):
    text = job(run={"steps": 1}).read_text()
    done = tiny.run(tiny.command("/dev/stdin", "--out", tmp_path / "out"), input=text)
    assert done.returncode == 0, done.stderr


def test_a_job_file_that_is_not_there_is_reported(tmp_path):
    path = tmp_path / "none.toml"
    assert fails(tiny.command(path)) == f"{path}: can't read the job file. Check the path."


# ---- data


def test_a_data_folder_that_is_not_there_is_reported_with_the_command_that_makes_one(job, tmp_path):
    message = fails(tiny.command(job(corpus=tmp_path / "nowhere")))
    assert (message.startswith(f"there is no data at {tmp_path / 'nowhere'}: ")
            and message.endswith("in a job as data.path."))


def cut(path, count):
    path.write_bytes(path.read_bytes()[:-count])


@pytest.mark.parametrize("name", ["corpus.bin", "corpus.idx"])
def test_a_truncated_file_of_tokens_is_reported_before_anything_runs(job, tmp_path, name):
    folder = tiny.write_corpus(tmp_path / "cut", tiny.random_documents(1, 40))
    cut(folder / name, 10)
    message = fails(tiny.command(job(corpus=folder)))
    assert message.startswith(f"{folder}/corpus.idx: ") and "cut short" in message
    assert message.endswith("Recreate it with `switchyard data prepare --force`.")


def test_a_token_outside_the_vocabulary_ends_the_run_and_leaves_its_checkpoints(job, tmp_path, corpus):
    documents = tiny.random_documents(1, 40)
    documents[3][0] = 500
    folder, out = tiny.write_corpus(tmp_path / "strange", documents), tmp_path / "out"
    words = tiny.command(job(corpus=folder, run={"checkpoint_every": 1}), "--out", out)
    assert fails(words) == (f"{folder}/corpus.bin: token 0 of document 3 is 500, outside the vocabulary of 120. "
                            "Prepare it with the model's tokenizer; for a new model, set model.vocab_size to the "
                            "tokenizer's size.")
    done = len(tiny.read_log(out))
    assert 0 < done < 5 and len(list((out / "checkpoints").iterdir())) == done
    resumed = tiny.train(job(), "--out", out, "--resume", out)
    assert [entry["step"] for entry in resumed] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("section", ["data", "validation"])
def test_a_corpus_that_says_so_is_refused_before_anything_runs(job, tmp_path, section):
    folder, out = tiny.write_corpus(tmp_path / "strange", tiny.random_documents(1, 40)), tmp_path / "out"
    (folder / "meta.json").write_text(json.dumps({"vocab_size": 600, "largest_id": 500}))
    words = tiny.command(job(), "--out", out, f"--set={section}.path={folder}")
    assert fails(words) == (f"{folder}/corpus.bin: its largest token is 500, outside the vocabulary of 120. "
                            "Prepare it with the model's tokenizer; for a new model, set model.vocab_size to the "
                            "tokenizer's size (600).")
    assert not (out / "log.jsonl").exists()


def test_a_document_above_the_context_is_refused_where_the_job_says_so(job):
    message = fails(tiny.command(job(data={"long_documents": "error"}, batch={"context": 40})))
    assert "more than batch.context = 40. Set data.long_documents to" in message


# ---- weights and checkpoints


def damaged_model(finished, folder, change):
    shutil.copytree(checkpoint(finished, 4) / "model", folder)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    return {"path": str(folder)}


def test_a_tensor_of_another_shape_is_reported_with_both_shapes(job, finished, tmp_path):
    name = "model.layers.1.mlp.up_proj.weight"
    model = damaged_model(finished, tmp_path / "shape", lambda tensors: tensors.update({name: torch.zeros(40, 32)}))
    message = fails(tiny.command(job(model=model)))
    assert message.startswith(f'{tmp_path / "shape"}: tensor "{name}" has shape [40, 32], but config.json asks for '
                              '[48, 32] here. Use ')


def test_a_missing_tensor_is_reported_by_name(job, finished, tmp_path):
    model = damaged_model(finished, tmp_path / "missing", lambda tensors: tensors.pop("model.norm.weight"))
    message = fails(tiny.command(job(model=model)))
    assert message.startswith(f'{tmp_path / "missing"}: there is no tensor "model.norm.weight"')


def test_a_truncated_file_of_weights_is_reported(job, finished, tmp_path):
    model = damaged_model(finished, tmp_path / "cut", lambda tensors: None)
    cut(tmp_path / "cut" / "model.safetensors", 10)
    message = fails(tiny.command(job(model=model)))
    assert (message.startswith(f"{tmp_path}/cut/model.safetensors: ") and "it was cut off" in message
            and "copy or download" in message)


def test_a_checkpoint_of_another_model_is_refused_with_both_named(job, finished):
    message = fails(tiny.command(job(model=tiny.MODEL | {"ffn_size": 64}), "--resume", finished))
    assert message == (f"checkpoint {checkpoint(finished, 4)} is of another model (model.ffn_size = 48) than the job's "
                       "(model.ffn_size = 64). "
                       "Use the job file it was made with.")


def test_a_context_beyond_the_model_s_window_is_refused(job, tmp_path):
    """Larger than max_position_embeddings, so that it hides something only from documents as long as the context."""
    config = MistralConfig(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                           intermediate_size=48,
                           vocab_size=tiny.VOCAB, max_position_embeddings=16, sliding_window=24)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "mistral")
    model = {"path": str(tmp_path / "mistral")}
    assert "batch.context = 48 is above the model's sliding_window = 24" in fails(tiny.command(job(model=model)))
    tiny.train(job([(24, "1,2,1")], model=model, batch={"context": 24}, run={"steps": 1}), "--out", tmp_path / "out")


# ---- verify


def damaged_fixture(tmp_path, file, change):
    """A copy of a fixture with `change` applied to the tensors of one file."""
    folder = tmp_path / "odd"
    shutil.copytree(tiny.ROOT / "tests" / "fixtures" / "llama-tied", folder)
    tensors = safetensors.torch.load_file(folder / file)
    change(tensors)
    safetensors.torch.save_file(tensors, folder / file)
    return folder


def replaced(name, value):
    return lambda tensors: tensors.update({name: value(tensors[name])})


def first_set(value):
    def change(tensor):
        tensor.view(-1)[0] = value
        return tensor
    return change


ODD_FOLDERS = {
    "a loss of fp32": ("expected", replaced("loss", lambda t: t.float()),
                       'tensor "loss" is F32 [1], but F64 [1] is needed'),
    "a loss without shape": ("expected", replaced("loss", lambda t: t[0].clone()),
                             'tensor "loss" is F64 [], but F64 [1] is needed'),
    "four losses": ("expected", replaced("train.loss", lambda t: t[:4].clone()),
                    'tensor "train.loss" is F64 [4], but F64 [5] is needed'),
    "no losses": ("expected", lambda tensors: tensors.pop("train.loss"), 'there is no tensor "train.loss"'),
    "nan": ("expected", replaced("logits", first_set(float("nan"))), 'tensor "logits" holds nan'),
    "a token outside": ("input", replaced("tokens", first_set(103)),
                        'tensor "tokens" has 103 at place 0, outside the vocabulary of 103'),
    "a wrong label": ("input", replaced("labels", first_set(102)), 'tensor "labels" has 102 at place 0'),
    "a document of no tokens": ("input", replaced("doc_lengths", first_set(0)),
                                'tensor "doc_lengths" has 0 at place 0'),
}


@pytest.mark.parametrize("odd", ODD_FOLDERS)
def test_a_verification_folder_with_odd_tensors_is_refused(tmp_path, odd):
    file, change, expected = ODD_FOLDERS[odd]
    folder = damaged_fixture(tmp_path, f"{file}.safetensors", change)
    message = fails([tiny.PROGRAM, "verify", folder])
    assert message.startswith(f"{folder}/{file}.safetensors: ") and expected in message


def test_results_that_differ_are_no_error_of_the_user(tmp_path):
    folder = damaged_fixture(tmp_path, "expected.safetensors", replaced("logits", first_set(9.0)))
    result = tiny.run([tiny.PROGRAM, "verify", folder])
    assert result.returncode == 1 and "NOT EQUAL" in result.stdout and result.stderr == ""


@pytest.mark.parametrize("shard", [0, 1])
def test_a_changed_byte_of_the_state_is_found_by_its_checksum(job, finished, tmp_path, shard):
    out = shutil.copytree(finished, tmp_path / "out")
    state = checkpoint(out, 4) / "state" / f"home-0000{shard}-of-00002.safetensors"
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    message = fails(tiny.command(job(), "--out", out, "--resume", out))
    assert f"{state} is damaged: the checksum of \"" in message
    assert message.endswith(f"Resume from the one before: --resume {checkpoint(out, 2)}")


def test_a_damaged_checkpoint_is_answered_with_the_one_before(job, finished, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    cut(checkpoint(out, 4) / "state" / "home-00001-of-00002.safetensors", 10)
    message = fails(tiny.command(job(), "--out", out, "--resume", out))
    assert "home-00001-of-00002.safetensors is damaged" in message
    assert message.endswith(f"Resume from the one before: --resume {checkpoint(out, 2)}")
    assert [entry["step"] for entry in tiny.train(job(), "--out", out, "--resume",
                                                  checkpoint(out, 2))] == [1, 2, 3, 4, 5]


def test_a_fresh_start_in_the_folder_of_another_run_is_refused(job, finished):
    expected = (f"{finished} holds a run already, with a checkpoint of step 4. Go on with --resume {finished}, "
                "start anew with --force, which sets it aside, or choose another run.out.")
    assert fails(tiny.command(job(), "--out", finished)) == expected


def test_a_folder_that_does_not_exist_has_nothing_to_export(tmp_path):
    assert fails([tiny.PROGRAM, "export", tmp_path / "none", "--out", tmp_path / "out"]) == \
        f"{tmp_path}/none does not exist. Give a run folder, or a checkpoint in it."


def test_a_folder_without_checkpoint_is_reported(job, tmp_path):
    assert "holds no complete checkpoint" in fails(tiny.command(job(), "--resume", tmp_path))


def file_size_limit(count):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (count, count))


def test_a_full_disk_while_saving_leaves_the_checkpoint_before(job, finished, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    path = job(run={"steps": 6, "checkpoint_every": 1})
    words = tiny.command(path, "--out", out, "--resume", out)
    message = fails(words, CLUSTER_ERROR, preexec_fn=file_size_limit(200_000))
    partial = re.escape(str(checkpoint(out, 5))) + r"\.[0-9a-f]{8}\.partial/"
    assert re.search(f"cannot write {partial}state/home-0000", message) and "Free some space" in message
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-00000002", "step-00000004"]
    resumed = tiny.train(path, "--out", out, "--resume", out)
    whole = tiny.train(path, "--out", tmp_path / "whole")
    assert [entry["loss"] for entry in resumed] == [entry["loss"] for entry in whole]


MAY_MOUNT = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
                           capture_output=True).returncode == 0


# The file system exists as long as the script, which trains, fills the remaining space, must fail, frees space and
# goes on.
SMALL_DISK = """set -eu
mount -t tmpfs -o size=8m tmpfs "$DISK"
"$@" --out "$DISK/run" --steps 2
head -c "$(($(df --output=avail -B1 "$DISK" | tail -1) - LEFT))" /dev/zero >"$DISK/filler"
"$@" --out "$DISK/run" --steps 3 --resume "$DISK/run" && exit 9 || echo "failed with $?"
rm "$DISK/filler"
ls "$DISK/run/checkpoints"
"$@" --out "$DISK/run" --steps 3 --resume "$DISK/run"
cp "$DISK/run/log.jsonl" "$KEPT"
"""


def pages(path):
    return -(-path.stat().st_size // 4096) * 4096


@pytest.mark.skipif(not MAY_MOUNT, reason="this user may not mount a small file system")
@pytest.mark.parametrize("written", [0, 2, 5, 6], ids=["state", "weights", "config", "manifest"])
def test_a_file_system_without_room_is_reported_and_the_run_goes_on_when_there_is_some(job, finished,
                                                                                       tmp_path, written):
    files = ["state/home-00000-of-00002.safetensors", "state/home-00001-of-00002.safetensors",
             "model/model.safetensors", "state/home-00000-of-00002.json", "state/home-00001-of-00002.json",
             "model/config.json", "state/manifest.json"]
    sizes = [pages(checkpoint(finished, 4) / name) for name in files]
    events = 4096  # number of events of the resumed run
    disk = tmp_path / "disk"
    disk.mkdir()
    variables = tiny.ENVIRONMENT | {"DISK": str(disk),
                                    "LEFT": str(events + sum(sizes[:written]) + sizes[written] - 4096),
                                    "KEPT": str(tmp_path / "log.jsonl")}
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, "sh"]
    result = tiny.run(words + tiny.command(job(run={"checkpoint_every": 1})), environment=variables)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["failed with 3", "step-00000001", "step-00000002"]
    # Ranks write the state and the weights at the same time, so any of these files may be the first without space.
    folder = re.escape(f"switchyard: cannot write {disk}/run/checkpoints/step-00000003.") + r"[0-9a-f]{8}\.partial/"
    assert any(re.search(folder + re.escape(name), result.stderr)
               for name in (files[:5] if written < 5 else [files[written]]))
    assert "No space left on device" in result.stderr and "Free some space" in result.stderr
    assert [entry["step"] for entry in tiny.read_log(tmp_path)] == [1, 2, 3]


def test_a_run_goes_on_without_the_model_that_it_started_from(finished, job, tmp_path):
    start, out = tmp_path / "start", tmp_path / "out"
    shutil.copytree(checkpoint(finished, 4) / "model", start)
    path = job(model={"path": str(start)}, run={"steps": 2})
    whole = tiny.train(path, "--out", tmp_path / "whole", "--steps", 4)
    tiny.train(path, "--out", out)
    start.rename(tmp_path / "gone")
    words = tiny.command(path, "--out", out, "--resume", out, "--steps", 4)
    assert fails(words).startswith(f"there is no model folder {start}. ")
    log = tiny.train(path, "--out", out, "--resume", out, "--steps", 4, "--set",
                     f"model.path={checkpoint(out, 2) / 'model'}")
    assert [entry["loss"] for entry in log] == [entry["loss"] for entry in whole]


def test_data_that_is_overwritten_while_a_run_uses_it_is_named(job, tmp_path):
    data = tiny.write_corpus(tmp_path / "own", tiny.random_documents(1, 40))
    run = subprocess.Popen(tiny.command(job(corpus=data), "--steps", NEVER_DONE), env=tiny.ENVIRONMENT, text=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tiny.wait_for_steps(run, 2)
    (data / "corpus.bin").write_bytes(b"")
    _, error = run.communicate(timeout=tiny.HANG)
    assert run.returncode == CLUSTER_ERROR and f"switchyard: cannot read {data}/corpus.bin any more: " in error, error


def without_vocabulary(job, corpus):
    path = job(corpus=corpus)
    path.write_text(re.sub(r"vocab_size = \d+\n", "", path.read_text()))
    return path


def test_an_unknown_vocabulary_comes_from_the_data(job, tmp_path):
    corpus = tiny.write_corpus(tmp_path / "own", tiny.random_documents(1, 8))
    (corpus / "meta.json").write_text('{"vocab_size": 140}')
    shown = tiny.run([tiny.PROGRAM, "show", "model", without_vocabulary(job, corpus)])
    assert shown.returncode == 0 and re.search(r"model.embed_tokens.weight +\[140,32\]", shown.stdout), shown.stderr


def test_a_vocabulary_that_is_unknown_to_job_and_data_is_reported(job, tmp_path):
    corpus = tiny.write_corpus(tmp_path / "own", tiny.random_documents(1, 8))
    assert "model.vocab_size is missing" in fails([tiny.PROGRAM, "show", "model", without_vocabulary(job, corpus)])
    message = fails(tiny.command(without_vocabulary(job, tmp_path / "nowhere")))
    assert message.startswith(f"there is no data at {tmp_path / 'nowhere'}: ")


# ---- ranks


@needs_mpi
def test_a_disk_that_is_full_for_one_rank_is_told_with_this_rank(tmp_path, corpus):
    path = tiny.write_job(tmp_path / "job.toml", corpus, [(48, "2,1,1")], model=tiny.MODEL | {"vocab_size": 4000},
                          run={"ranks": 2, "steps": 4, "checkpoint_every": 2, "async_save": False})
    words = tiny.command(path, "--out", tmp_path / "out")
    ranks = tiny.start_ranks([words, ["sh", "-c", 'ulimit -f 500; exec "$@"', "sh", *words]], hosts=["a", "b"])
    first, second = (rank.communicate(timeout=tiny.HANG)[1] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [CLUSTER_ERROR] * 2
    full = f"cannot write {tmp_path}/out/checkpoints/step-00000002"
    assert f"switchyard, rank 1: {full}" in second and f"stopped: rank 1 (host b): {full}" in first
    assert not list((tmp_path / "out" / "checkpoints").iterdir())


def test_ranks_with_different_job_files_end_with_their_numbers(job, tmp_path):
    first = job().rename(tmp_path / "first.toml")
    second = job(optimizer={"lr": 2e-3})
    result = tiny.run([*tiny.MPIRUN, "-n", 1, *tiny.command(first), ":", "-n", 1, *tiny.command(second)])
    assert result.returncode == CLUSTER_ERROR
    assert ("ranks [1] have another job file than rank 0. Start all ranks with the same job file and program."
            in result.stderr)


def test_a_run_is_set_aside_only_once_the_ranks_have_the_same_job(job, finished, tmp_path):
    out = shutil.copytree(finished, tmp_path / "run")
    first = job().rename(tmp_path / "first.toml")
    commands = [tiny.command(one, "--out", out, "--force") for one in (first, job(optimizer={"lr": 2e-3}))]
    for process in tiny.start_ranks(commands):
        assert "ranks [1] have another job file than rank 0" in process.communicate(timeout=tiny.HANG)[1]
        assert process.returncode == CLUSTER_ERROR
    assert not (out / "abandoned-1").exists() and checkpoint(out, 4).exists()


def test_a_rank_that_has_another_run_folder_is_found_before_the_first_step(job, tmp_path):
    file = job(fabric={"timeout": "3 s"})
    processes = tiny.start_ranks([tiny.command(file, "--out", tmp_path / name) for name in ("run", "other")])
    errors = [process.communicate(timeout=tiny.HANG)[1] for process in processes]
    assert [process.returncode for process in processes] == [CLUSTER_ERROR, USER_ERROR], errors
    told = (f'run.out = "{tmp_path / "other"}": rank 0\'s lock is not in this folder as this rank sees it, but each '
            "rank writes a part of every checkpoint there. Name a folder that all hosts share, by its full path.")
    assert all(told in " ".join(error.split()) for error in errors), errors
    assert "step 1/" not in errors[0]


@pytest.mark.parametrize("what, changes, options", [
    ("training corpus", {"corpus": "corpus"}, []),
    ("validation corpus", {"validation": {"path": "corpus", "every": 2}}, []),
    ("model.path (other weights)", {"model": {"path": "run/checkpoints/step-00000004/model"}}, []),
    ("checkpoint", {}, ["--resume", "run", "--steps", 6])])
def test_ranks_that_find_other_files_under_a_path_end_before_the_first_step(job, finished, corpus, tmp_path, what,
                                                                            changes, options):
    """Hosts have files of their own, of the same sizes."""
    for number, name in enumerate("ab"):
        documents = [[(token + number) % tiny.MODEL["vocab_size"] for token in document]
                     for document in tiny.random_documents(1, 40)]
        tiny.write_corpus(tmp_path / name / "corpus", documents)
    shutil.copytree(finished, tmp_path / "a" / "run")
    tiny.train(job(optimizer={"lr": 2e-3}, run={"steps": 4, "checkpoint_every": 2}), "--out", tmp_path / "b" / "run")
    words = tiny.command(job(**({"corpus": corpus} | changes)), *options)
    ranks = tiny.start_ranks([["sh", "-c", 'cd "$0"; exec "$@"', tmp_path / name, *words] for name in "ab"])
    errors = [" ".join(rank.communicate(timeout=tiny.HANG)[1].split()) for rank in ranks]
    told = f"ranks [1] have another {what} than rank 0. Give every host the same files, by their full paths."
    assert [rank.returncode for rank in ranks] == [CLUSTER_ERROR] * 2 and all(told in error for error in errors), errors
    assert "step 1/" not in errors[0]


def test_ranks_of_which_only_one_has_a_run_folder_are_refused(job, tmp_path):
    ranks = tiny.start_ranks([tiny.command(job(), "--out", tmp_path / "out"), tiny.command(job())])
    for rank in ranks:
        error = " ".join(rank.communicate(timeout=tiny.HANG)[1].split())
        assert rank.returncode == CLUSTER_ERROR
        assert ("ranks [1] have another run.out (a folder, or none) than rank 0. Give all ranks --out, or none."
                in error), error


def test_another_number_of_processes_than_ranks_is_refused_by_each(job):
    for rank, process in enumerate(tiny.start_ranks([tiny.command(job())] * 3)):
        out, error = process.communicate(timeout=tiny.HANG)
        assert error.startswith(f"switchyard, rank {rank}: ")
        result = subprocess.CompletedProcess([], process.returncode, out, error)
        assert message_of(result,
                          USER_ERROR) == "the job is for 2 ranks, but 3 were launched. Launch 2, or change run.ranks."


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_others_within_seconds_with_its_name(job, tmp_path, victim):
    path = job(run={"steps": NEVER_DONE})
    ranks = tiny.start_ranks([tiny.command(path, "--out", tmp_path / "out")] * 2)
    tiny.wait_for_steps(ranks[0], 1)
    ranks[victim].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    out, error = ranks[1 - victim].communicate(timeout=tiny.HANG)
    assert time.monotonic() - killed < 15
    message = message_of(subprocess.CompletedProcess([], ranks[1 - victim].returncode, out, error), CLUSTER_ERROR)
    assert message.startswith(f"rank {1 - victim} (") and f"rank {victim} (host " in message and "is gone" in message
    ranks[victim].communicate()


def test_a_rank_that_hangs_ends_the_others_after_the_timeout(job, tmp_path):
    path = job(run={"steps": NEVER_DONE}, fabric={"timeout": "6 s"})
    ranks = tiny.start_ranks([tiny.command(path, "--out", tmp_path / "out")] * 2)
    tiny.wait_for_steps(ranks[0], 1)
    ranks[1].send_signal(signal.SIGSTOP)
    out, error = ranks[0].communicate(timeout=tiny.HANG)
    ranks[1].kill()
    ranks[1].communicate()
    message = message_of(subprocess.CompletedProcess([], ranks[0].returncode, out, error), CLUSTER_ERROR)
    assert "heard nothing from rank 1" in message and "for 6 s" in message and "fabric.timeout" in message


@needs_mpi
def test_a_killed_rank_ends_a_job_of_mpirun(job, tmp_path):
    words = [*tiny.MPIRUN, "-n", "2", *tiny.command(job(run={"steps": NEVER_DONE}), "--out", tmp_path / "out")]
    process = subprocess.Popen(words, env=tiny.ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tiny.wait_for_steps(process, 1)
    ranks = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True,
                           text=True).stdout.split()
    assert len(ranks) == 2
    os.kill(int(ranks[1]), signal.SIGKILL)
    killed = time.monotonic()
    _, error = process.communicate(timeout=tiny.HANG)
    assert time.monotonic() - killed < 15 and process.returncode != 0
    assert "Killed" in error or "is gone" in error
