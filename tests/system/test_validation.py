"""[validation]: the loss of documents that aren't trained, under every strategy, without a trace in training."""

import json

import pytest
import tiny_runs as tiny

STRATEGIES = {
    "one rank": (1, [(48, "1,1,1")]),
    "switching": (4, [(48, "1,2,2"), (20, "4,1,1")]),
    "tensor parallel in two dims": (4, [(48, "tp=4,inner=2")]),
    "ulysses": (4, [(48, "dp=2,ulysses=2")]),
    "depth and ZeRO-3": (4, [(48, "dp=2,depth=2,zero=3"), (20, "dp=4,zero=2")]),
    "ZB-V": (2, [(48, {"dp": 1, "tp": 1, "pp": 2, "schedule": "zb-v"})]),
    "interleaved": (2, [(48, {"dp": 1, "tp": 1, "pp": 2, "schedule": "interleaved", "chunks": 2})]),
    "unlike groups": (4, [(48, "1,2,1 + 1,1,2")]),
}
STILL = {"lr": 1e-300, "schedule": "constant"}  # no weight changes by a bit


def validations(out):
    return [json.loads(line) for line in (out / "validation.jsonl").read_text().splitlines()]


def events(out):
    """The validations that TensorBoard shows."""
    return {key: value for key, value in tiny.events(out).items() if key[0].startswith("validation/")}


def run_with_validation(tmp_path, corpus, ranks, buckets, validation, **sections):
    job = tiny.write_job(tmp_path / "job.toml", corpus, buckets, validation=validation,
                         **({"run": {"ranks": ranks, "steps": 3}} | sections))
    out = tmp_path / "out"
    log = tiny.train(job, "--out", out)
    return log, validations(out)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_loss_is_that_of_a_training_step_with_the_same_documents(name, tmp_path, corpus):
    ranks, buckets = STRATEGIES[name]
    log, validated = run_with_validation(tmp_path, corpus, ranks, buckets,
                                         {"path": str(corpus), "every": 2, "sequences": 8}, optimizer=STILL)
    assert [record["step"] for record in validated] == [2, 3]
    for record in validated:
        assert record["loss"] == pytest.approx(log[0]["loss"], rel=1e-12)
        assert record["tokens"] == log[0]["tokens"]


def test_dropout_is_left_out(tmp_path, corpus):
    model = {"architecture": "gpt2", "hidden_size": 32, "layers": 2, "heads": 4, "vocab_size": tiny.VOCAB,
             "attention": "unfused"}
    losses = []
    for dropout in (0.0, 0.5):
        (tmp_path / str(dropout)).mkdir()
        log, validated = run_with_validation(tmp_path / str(dropout), corpus, 1, [(48, "1,1,1")],
                                             {"path": str(corpus), "every": 1, "sequences": 8}, optimizer=STILL,
                                             model=model | {"dropout": dropout})
        losses.append((log[0]["loss"], validated[0]["loss"]))
    assert losses[0][0] != losses[1][0] and losses[0][1] == losses[1][1] == pytest.approx(losses[0][0], rel=1e-12)


def test_training_is_the_same_with_it_and_without_it(tmp_path, corpus):
    ranks, buckets = STRATEGIES["switching"]
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    with_it, _ = run_with_validation(tmp_path / "with", corpus, ranks, buckets, {"path": str(corpus), "every": 1})
    job = tiny.write_job(tmp_path / "without" / "job.toml", corpus, buckets, run={"ranks": ranks, "steps": 3})
    without = tiny.train(job, "--out", tmp_path / "without" / "out")
    assert [(e["loss"], e["grad_norm"]) for e in with_it] == [(e["loss"], e["grad_norm"]) for e in without]
    assert not (tmp_path / "without" / "out" / "validation.jsonl").exists()


def test_parts_by_length_and_by_source_make_up_the_whole(tmp_path, corpus):
    corpora = {name: tiny.random_documents(seed, 10) for seed, name in enumerate(("web", "code"), 5)}
    sources = [{"path": str(tiny.write_corpus(tmp_path / name, documents)), "name": name}
               for name, documents in corpora.items()]
    ranks, buckets = STRATEGIES["switching"]
    job = tiny.write_job(tmp_path / "job.toml", corpus, buckets, run={"ranks": ranks, "steps": 1},
                         validation={"every": 0, "sequences": 18})
    job.write_text(job.read_text() + "".join(
        "[[validation.source]]\n" + "".join(f"{key} = {tiny.toml(value)}\n" for key, value in source.items())
        for source in sources))
    tiny.train(job, "--out", tmp_path / "out")
    [record] = validations(tmp_path / "out")
    assert {"loss", "loss/to 48", "loss/web", "tokens/code", "seconds"} < record.keys()
    assert events(tmp_path / "out") == {(f"validation/{key}", 1): pytest.approx(value, rel=1e-6)
                                        for key, value in record.items() if key != "step"}
    for parts in (("to 48", "to 20"), ("web", "code")):
        assert sum(record[f"tokens/{part}"] for part in parts) == record["tokens"]
        losses = [record[f"loss/{part}"] for part in parts]
        assert min(losses) < record["loss"] < max(losses)


def test_where_a_small_source_has_no_more_documents_the_others_have_its_share(tmp_path, corpus):
    few, many = tiny.random_documents(5, 3), tiny.random_documents(6, 12)
    text = "".join(f'[[validation.source]]\npath = "{tiny.write_corpus(tmp_path / name, documents)}"\n'
                   f'name = "{name}"\nweight = {weight}\n'
                   for name, documents, weight in (("few", few, 9), ("many", many, 1)))

    def validated(sequences):
        job = tiny.write_job(tmp_path / f"{sequences}.toml", corpus, STRATEGIES["switching"][1],
                             run={"ranks": 4, "steps": 1}, validation={"every": 0, "sequences": sequences})
        job.write_text(job.read_text() + text)
        tiny.train(job, "--out", tmp_path / f"out-{sequences}")
        return validations(tmp_path / f"out-{sequences}")[0]

    most, every = validated(14), validated(99)
    assert most["tokens/few"] == every["tokens/few"] == sum(map(len, few))
    assert every["tokens/many"] == sum(map(len, many))
    assert every["tokens/many"] - most["tokens/many"] in map(len, many)  # 11 of 12


def test_a_resumed_run_validates_as_if_it_had_not_stopped(tmp_path, corpus):
    ranks, buckets = STRATEGIES["switching"]
    job = tiny.write_job(tmp_path / "job.toml", corpus, buckets, run={"ranks": ranks, "steps": 4},
                         validation={"path": str(corpus), "every": 1, "sequences": 5})
    tiny.train(job, "--out", tmp_path / "whole")
    tiny.train(job, "--out", tmp_path / "parts", "--steps", 3)
    tiny.train(job, "--out", tmp_path / "parts", "--resume", tmp_path / "parts" / "checkpoints" / "step-00000003")
    figures = [[{key: value for key, value in record.items() if key != "seconds"} for record in validations(folder)]
               for folder in (tmp_path / "whole", tmp_path / "parts")]
    assert figures[0] == figures[1] and [record["step"] for record in figures[0]] == [1, 2, 3, 4]


@pytest.mark.parametrize("validation, message", [
    ({"path": "nowhere"}, "nowhere"),
    ({"every": -1}, "validation.every"),
    ({"path": "other", "source": [{"path": "x"}]}, "validation.path and [[validation.source]] exclude each other."),
    ({"pth": "x"}, "validation.pth is not a key. Did you mean validation.path?"),
])
def test_bad_settings_are_refused_before_anything_runs(validation, message, tmp_path, corpus):
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(48, "1,1,1")], run={"ranks": 1},
                         validation={key: value for key, value in validation.items() if key != "source"})
    for source in validation.get("source", []):
        job.write_text(job.read_text() + f"[[validation.source]]\npath = {tiny.toml(source['path'])}\n")
    done = tiny.run(tiny.command(job))
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_another_tokenizer_is_refused(tmp_path, corpus):
    other = tiny.write_corpus(tmp_path / "other", tiny.random_documents(3, 5))
    mine = tiny.write_corpus(tmp_path / "mine", tiny.random_documents(3, 5))
    (other / "meta.json").write_text('{"vocab_size": 90}')
    (mine / "meta.json").write_text('{"vocab_size": 120}')
    job = tiny.write_job(tmp_path / "job.toml", mine, [(48, "1,1,1")], validation={"path": str(other)})
    done = tiny.run(tiny.command(job))
    assert done.returncode == 2
    assert done.stderr == (f"switchyard: validation: {other} was prepared with another tokenizer than {mine}. Prepare "
                           f"it again with --tokenizer {mine}.\n")


def test_memory_that_does_not_suffice_is_known_before_the_first_step(tmp_path, corpus):
    long = tiny.write_corpus(tmp_path / "long", [[1] * 500] * 4)
    short = tiny.write_corpus(tmp_path / "short", [[1] * 2] * 40)
    job = tiny.write_job(tmp_path / "job.toml", short, [(512, "1,1,1")], run={"ranks": 1, "memory_budget": "17 MiB"},
                         batch={"sequences": 1, "context": 512}, validation={"path": str(long)},
                         model=tiny.MODEL | {"ffn_size": 4096, "layers": 1})
    done = tiny.run(tiny.command(job))
    assert done.returncode == 2
    assert done.stderr.startswith("switchyard: validation: rank 0 needs "), done.stderr
