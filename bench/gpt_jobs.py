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


def simulated(program, model, strategy, sequences, ranks, cluster):
    """What the program prints of a step with --json."""
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.toml"
        job.write_text(f"""
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
[[bucket]]
max_length = {model.context}
strategy = "{strategy}"
[run]
ranks = {ranks}
precision = "bf16"
""")
        done = subprocess.run([program, "simulate", job, "--cluster", cluster, "--json"], capture_output=True,
                              text=True)
    if not done.stdout:  # a job that does not fit has figures, too, and exit status 2
        raise SystemExit(f"{strategy}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])
