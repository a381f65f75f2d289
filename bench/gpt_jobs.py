"""Jobs of GPT models on a cluster that nobody here has, as `switchyard simulate` predicts them."""

import dataclasses
import json
import pathlib
import subprocess
import tempfile


@dataclasses.dataclass(frozen=True)
class Model:
    """With fused attention and full sequences."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    context: int

    def flops(self, sequences):
        """Flops of a step with full recomputation: D. Narayanan et al., arXiv 2104.04473, section 5.1."""
        return (96 * sequences * self.context * self.layers * self.hidden**2 *
                (1 + self.context / (6 * self.hidden) + self.vocabulary / (16 * self.layers * self.hidden)))


def text_of(model, sequences, ranks, strategy=None):
    """A job whose sequences are all full. Without a strategy it has no bucket."""
    bucket = f"""
[[bucket]]
max_length = {model.context}
strategy = "{strategy}"
"""
    return f"""
[model]
architecture = "gpt2"
hidden_size = {model.hidden}
layers = {model.layers}
heads = {model.heads}
vocab_size = {model.vocabulary}
attention = "fused"
[batch]
sequences = {sequences}
context = {model.context}
lengths = "full"
[run]
ranks = {ranks}
precision = "bf16"
""" + (bucket if strategy else "")


def figures(program, *words):
    """What the program prints with --json. A job that does not fit has figures, too, and exit status 2."""
    done = subprocess.run([program, *words, "--json"], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def simulated(program, model, strategy, sequences, ranks, cluster):
    """The figures of a step."""
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.toml"
        job.write_text(text_of(model, sequences, ranks, strategy))
        return figures(program, "simulate", job, "--cluster", cluster)


def planned(program, model, sequences, ranks, cluster, *words):
    """The figures of the planner's best single strategy."""
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.toml"
        job.write_text(text_of(model, sequences, ranks))
        return figures(program, "plan", job, "--cluster", cluster, "--buckets", "1", *words)
