#!/usr/bin/env python3
"""tools/lengths.py [DIR]: writes recipes/lengths/*.json, histograms of document lengths in the form of
`data stats --json`.

They are models with the shape that publications describe, no measurements: a log-normal body, and a Pareto tail whose
weight is a choice. Bins hold lo <= length < hi, four to an octave; the last one has the documents that are cut off.
"""

import json
import math
import pathlib
import statistics
import sys

DOCUMENTS = 1_000_000
MODELS = {
    "commoncrawl": {
        "body": (6.02, 0.91), "tail": 0.015, "least": 3000, "alpha": 1.1, "longest": 32768,
        "facts": [
            "tiiuae/falcon-refinedweb, dataset card: 968,000,015 documents of 2,858 bytes in the mean, about 627 "
            "tokens",
            "BEE-spoke-data/falcon-refinedweb-1M_en_medium, dataset card: of documents with 512 to 8192 tokens the "
            "median is 871, quartiles 653 and 1,315; here 892, 661 and 1,363",
            "HotSPa (SOSP 2024) draws its CommonCrawl documents from falcon-refinedweb, up to 32768 tokens"]},
    "github": {
        "body": (6.6, 1.3), "tail": 0.01, "least": 12000, "alpha": 1.0, "longest": 131072,
        "facts": [
            "RedPajama: 59e9 tokens in 28,793,312 files of GitHub, 2,049 in the mean; here 2,101",
            "HotSPa (SOSP 2024) draws its GitHub documents from bigcode/starcoderdata, and gives them a bucket more "
            "than CommonCrawl's: they have more long ones"]},
}


def histogram(model):
    """[[lo, hi, count]] whose counts sum to DOCUMENTS."""
    normal = statistics.NormalDist(*model["body"])

    def below(tokens):
        tail = 1 - (model["least"] / tokens) ** model["alpha"] if tokens > model["least"] else 0
        return (1 - model["tail"]) * normal.cdf(math.log(tokens)) + model["tail"] * tail

    octaves = math.log2(model["longest"])
    edges = [round(2 ** (quarter / 4)) for quarter in range(16, round(4 * octaves) + 1)]
    shares = [below(hi) - below(lo) for lo, hi in zip(edges, edges[1:])]
    shares[0] += below(edges[0])  # shorter ones count as the shortest
    counts = [round(DOCUMENTS * share) for share in shares]
    bins = [[lo, hi, count] for lo, hi, count in zip(edges, edges[1:], counts) if count]
    return [*bins, [model["longest"], model["longest"] + 1, DOCUMENTS - sum(counts)]]


def text_of(name):
    model = MODELS[name]
    mu, sigma = model["body"]
    shape = (f"{100 * (1 - model['tail']):g}% log-normal (mu {mu}, sigma {sigma}), the others Pareto (from "
             f"{model['least']} tokens, alpha {model['alpha']:g}), cut off at {model['longest']}")
    head = json.dumps({"name": name, "unit": "tokens", "model": shape, "facts": model["facts"]}, indent=1)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in histogram(model))
    return f'{head.removesuffix("}").rstrip()},\n "bins": [\n{rows}\n ]\n}}\n'


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "recipes" / "lengths"
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        (folder / f"{name}.json").write_text(text_of(name))


if __name__ == "__main__":
    main()
