"""`switchyard evaluate`: the loss of runs, checkpoints and other models on documents."""

import json
import math
import re

import pytest
import tiny_runs as tiny
import torch
from transformers import AutoModelForCausalLM

DOCUMENTS = tiny.random_documents(5, 12, longest=600)
LONG = [document for document in DOCUMENTS if len(document) > 300]
PARAMETERS = 38_688
FEW = ["--context", 48, "--sequences", 4]
ROUNDING = 1e-6  # relative; saved weights and the norms of transformers are fp32


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("data") / "data", DOCUMENTS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, corpus):
    """The run folder, and its model's folder."""
    folder = tmp_path_factory.mktemp("run")
    tiny.train(tiny.write_job(folder / "job.toml", corpus, [(48, "1,1,1")], run={"steps": 2}), "--out", folder / "out")
    return folder / "out", folder / "out/checkpoints/step-00000002/model"


def loss_in_transformers(model, documents):
    """Mean over all labels, with a forward pass for each document."""
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64, attn_implementation="eager").eval()
    with torch.no_grad():
        sums = [float(loaded(ids, labels=ids).loss) * (ids.numel() - 1)
                for ids in (torch.tensor([document]) for document in documents) if ids.numel() > 1]
    return sum(sums) / sum(len(document) - 1 for document in documents)


def evaluate(model, data, *options):
    done = tiny.run([tiny.PROGRAM, "evaluate", model, "--data", data, "--set", "run.precision=fp64", *options])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loss_is_that_of_transformers_in_all_and_by_length(trained, data):
    run, model = trained
    said = evaluate(run, data, "--context", 600, "--json")
    figures = json.loads(said.splitlines()[-1])
    assert figures["loss"] == pytest.approx(loss_in_transformers(model, DOCUMENTS), rel=ROUNDING)
    assert figures["loss/to 600"] == pytest.approx(loss_in_transformers(model, LONG), rel=ROUNDING)
    assert figures["tokens"] == sum(map(len, DOCUMENTS))
    assert figures["tokens/to 600"] == sum(map(len, LONG))
    assert f"{math.exp(figures['loss']):.2f}" in said.splitlines()[1]


def test_a_checkpoint_and_a_model_of_other_tools_are_evaluated_under_any_strategy(trained, data, tmp_path):
    run, model = trained
    tables = [evaluate(run, data), evaluate(model.parent, data, "--ranks", 4, "--strategy", "dp=2,ring=2"),
              evaluate(model, data, "--ranks", 4, "--strategy", "1,2,2")]
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(tmp_path / "other")
    tables.append(evaluate(tmp_path / "other", data))
    assert tables[0].splitlines()[0].split() == ["documents", "loss", "perplexity", "tokens"]
    assert len(set(tables)) == 1


def test_longer_documents_are_split_and_so_many_are_taken(trained, data):
    _, model = trained
    parts = [document[i:i + 48] for document in DOCUMENTS for i in range(0, len(document), 48)]
    split = json.loads(evaluate(model, data, "--json").splitlines()[-1])  # at the model's positions
    assert split["loss"] == pytest.approx(loss_in_transformers(model, parts), rel=ROUNDING)
    figures = json.loads(evaluate(trained[0], data, "--context", 100, "--sequences", 3, "--json").splitlines()[-1])
    assert figures["tokens"] <= 300 and "loss/to 100" not in figures


def test_documents_are_whole_where_rotations_follow_their_length(corpus, data, tmp_path):
    """Not cut to what the model had before its scaling."""
    model = tiny.MODEL | {"rope_scaling": {"type": "dynamic", "factor": 4.0, "original_context": 12.0}}
    job = tiny.write_job(tmp_path / "job.toml", corpus, [(600, "1,1,1")], model=model, batch={"context": 600},
                         run={"steps": 1}, validation={"path": str(data)})
    tiny.train(job, "--out", tmp_path / "out")
    [validated] = map(json.loads, (tmp_path / "out/validation.jsonl").read_text().splitlines())
    figures = json.loads(evaluate(tmp_path / "out", data, "--json").splitlines()[-1])
    assert figures["loss"] == pytest.approx(validated["loss"], rel=ROUNDING)


@pytest.fixture(scope="module")
def loss_on_one_rank(trained, data):
    return json.loads(evaluate(trained[1], data, *FEW, "--json").splitlines()[-1])["loss"]


@pytest.mark.parametrize("strategy", ["1,1,1", "dp=2", "dp=2,zero=2", "dp=2,zero=3", "tp=2", "tp=2,inner=2", "depth=2",
                                      "ulysses=2", "ring=2", "ring=2,exchange=ring", "pp=2",
                                      "pp=2,schedule=interleaved", "dp=2,pp=2", "dp=2,tp=2,zero=3"])
def test_less_memory_suffices_than_an_optimizer_s_state_takes(trained, data, loss_on_one_rank, strategy):
    ranks = math.prod(int(degree) for degree in re.findall(r"(?:dp|tp|depth|ulysses|ring|pp)=(\d)", strategy))
    state = 4 * 8 * PARAMETERS // ranks  # master weights, two moments, gradients
    said = evaluate(trained[1], data, *FEW, "--ranks", ranks, "--strategy", strategy, "--set",
                    f"run.memory_budget={state} B", "--json")
    assert json.loads(said.splitlines()[-1])["loss"] == pytest.approx(loss_on_one_rank, rel=1e-12)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
@pytest.mark.parametrize("strategy", ["pp=2", "dp=2,pp=2", "tp=2,pp=2,paired=true"])
def test_a_pipeline_receives_few_of_many_micro_batches_at_once(trained, tmp_path, strategy, processes):
    data = tiny.write_corpus(tmp_path / "data", tiny.random_documents(3, 128))
    expected = json.loads(evaluate(trained[1], data, "--context", 48, "--json").splitlines()[-1])
    ranks = 2 * math.prod(int(degree) for degree in re.findall(r"(?:dp|tp)=(\d)", strategy))
    words = [tiny.PROGRAM, "evaluate", str(trained[1]), "--data", str(data), "--set", "run.precision=fp64", "--context",
             "48", "--strategy", strategy + ",micro_batch_sequences=1", "--set", "run.memory_budget=250 KiB", "--json"]
    if processes:
        said, error = [rank.communicate(timeout=tiny.HANG) for rank in tiny.start_ranks([words] * ranks)][0]
    else:
        done = tiny.run([*words, "--ranks", str(ranks)])
        said, error = done.stdout, done.stderr
    assert said, error
    assert json.loads(said.splitlines()[-1])["loss"] == pytest.approx(expected["loss"], rel=1e-12)


def test_a_budget_below_the_weights_is_refused(trained, data):
    done = tiny.run([tiny.PROGRAM, "evaluate", trained[1], "--data", data, "--set", "run.precision=fp64",
                     "--set", "run.memory_budget=300 KiB"])
    assert done.returncode == 2
    parts = "Most of it: compute copy. In all 305 KiB: compute copy 302 KiB, "
    assert parts in done.stderr, done.stderr


def test_no_document_is_counted_twice(trained, data):
    assert evaluate(trained[0], data, "--sequences", 1000) == evaluate(trained[0], data)


def test_one_of_several_processes_prints(trained, data):
    words = [tiny.PROGRAM, "evaluate", str(trained[0]), "--data", str(data), "--set", "run.precision=fp64"]
    processes = tiny.start_ranks([words] * 2)
    said = [process.communicate(timeout=tiny.HANG) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert said[0][0] == evaluate(trained[0], data) and said[1][0] == ""


@pytest.mark.parametrize("options, message", [
    (["nowhere", "--data", "DATA"],
     "there is no folder nowhere. Give a run folder, a checkpoint, or a folder with config.json."),
    (["DATA", "--data", "DATA"], "DATA holds no complete checkpoint"),
    (["RUN", "--data", "nowhere"], "there is no data at nowhere"),
    (["RUN"], "--data is required"),
    (["RUN", "--data", "DATA", "--context", "0"], "--context"),
    (["RUN", "--data", "DATA", "--context", "1"], "--context 1: a document of one token has no next token to predict."),
    (["RUN", "--data", "DATA", "--strategy", "3,1,1"], "3"),
    (["RUN", "--data", "DATA", "--set", "data.path=elsewhere"],
     "--data DATA: --set data.path=elsewhere gives data.path another value. Keep one of them."),
    (["RUN", "--data", "DATA", "--set", "batch.context=9"], "--set batch.context=9: give --context instead."),
    (["RUN", "--data", "OTHER"], "id"),
    (["RUN", "--data", "DATA", "--set", "model.rope_theta=3"],
     "--set model.rope_theta=3: RUN is a run or its checkpoint, whose weights were trained with its own "
     "model.rope_theta. Leave it out."),
    (["RUN", "--data", "DATA", "--set", "run.out=x"],
     "--set run.out=x: run.out has no effect, as nothing is trained. Leave it out."),
    (["RUN", "--data", "DATA", "--set", "optimizer.lr=1"],
     "--set optimizer.lr=1: optimizer.lr has no effect, as nothing is trained. Leave it out."),
    (["RUN", "--data", "DATA", "--context", "99999999999"],
     "switchyard: --context 99999999999 must be at most"),
])
def test_mistakes_are_named(trained, data, tmp_path, options, message):
    other = tiny.write_corpus(tmp_path / "other", [[tiny.VOCAB + 5] * 4])
    places = {"RUN": str(trained[0]), "DATA": str(data), "OTHER": str(other)}
    done = tiny.run([tiny.PROGRAM, "evaluate", *(places.get(word, word) for word in options)])
    for name, place in places.items():
        message = message.replace(name, place)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("switchyard") and message in done.stderr
