r"""The training step of `switchyard bench step` in Hugging Face transformers, for comparison.

    python bench/transformers_step.py --hidden 512 --layers 8 --heads 8 --kv-heads 4 --ffn 1408 --vocab 8192 \
        --seq 1024 --batch 4 --threads 2

A LLaMA model with sdpa attention in fp32, cross-entropy over the whole batch, clipping by global norm and fused AdamW.
The last line printed is a JSON object: tok_s (tokens per second of the median step), step_seconds, params, loss.
"""

import argparse
import json
import statistics
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"hidden": 512, "layers": 8, "heads": 8, "kv-heads": 4, "ffn": 1408, "vocab": 8192,
             "seq": 1024, "batch": 4, "threads": 2}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=4, help="measured steps, after one warm-up step")
    return parser.parse_args()


def main():
    args = arguments()
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        intermediate_size=args.ffn,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        max_position_embeddings=args.seq,
        attn_implementation="sdpa",
        use_cache=False,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    seconds = []
    for step in range(args.steps + 1):
        tokens = torch.randint(args.vocab, (args.batch, args.seq))
        start = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step > 0:
            seconds.append(time.perf_counter() - start)
    step_seconds = statistics.median(seconds)
    result = {
        "tok_s": args.batch * args.seq / step_seconds,
        "step_seconds": step_seconds,
        "params": sum(p.numel() for p in model.parameters()),
        "loss": loss.item(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
