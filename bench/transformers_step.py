r"""The training step of `switchyard bench step` in Hugging Face transformers, for comparison.

    .venv/bin/python bench/transformers_step.py --hidden 512 --layers 8 --heads 8 --kv-heads 4 --ffn 1408 \
        --vocab 8192 --seq 1024 --batch 4 --threads 2
    .venv/bin/python bench/transformers_step.py --cuda --precision bf16 --compile --hidden 4096 --layers 4 --heads 32 \
        --kv-heads 32 --ffn 11008 --vocab 32000 --lengths 32768,4096x4,512x32 --micro-batch 32768

A LLaMA model with cross-entropy over the whole batch, clipping by global norm and fused AdamW, whose state is in fp32;
with bf16 the forward and backward pass compute in bf16 (autocast). Documents of one length are a batch with sdpa
attention, which is flash attention on GPUs (--cudnn: cuDNN's). Documents of several lengths (--lengths) are packed into
rows of up to --micro-batch tokens; each sees itself alone: by torch's attention for sequences of any lengths (flash
attention) on GPUs, document by document on CPUs. The last line printed is a JSON object: tok_s (tokens per second of
the median of --steps steps), step_seconds, params, loss, peak_bytes (on GPUs).
"""

import argparse
import contextlib
import itertools
import json
import statistics
import time

MOST_TOKENS = 1 << 24


def lengths_of(text):
    """The lengths of documents in a text such as 4096,512x8."""
    lengths = []
    for item in text.split(","):
        tokens, _, count = item.partition("x")
        if not tokens.isdigit() or not (count or "1").isdigit() or not 0 < int(tokens) <= MOST_TOKENS:
            raise argparse.ArgumentTypeError(f"{text!r}: give tokens of documents, such as 4096,512x8")
        lengths += [int(tokens)] * int(count or 1)
    return lengths


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"hidden": 512, "layers": 8, "heads": 8, "kv-heads": 4, "ffn": 1408, "vocab": 8192,
             "seq": 1024, "batch": 4, "threads": 2}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lengths", type=lengths_of, help="tokens of each document, instead of --seq and --batch")
    parser.add_argument("--micro-batch", type=int, help="most tokens of a row with --lengths; default: the longest")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--cuda", action="store_true", help="compute on the first CUDA device")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--cudnn", action="store_true", help="sdpa by cuDNN's attention, whatever torch would choose")
    parser.add_argument("--steps", type=int, default=4, help="measured steps, after one warm-up step")
    return parser.parse_args()


def rows_of(lengths, most):
    """Documents in rows of up to `most` tokens: each in the first row that has room, the longest first."""
    rows = []
    for length in sorted(lengths, reverse=True):
        if length > most:
            raise SystemExit(f"transformers_step: --micro-batch {most} is shorter than a document of {length} tokens")
        row = next((row for row in rows if sum(row) + length <= most), None)
        if row is None:
            rows.append(row := [])
        row.append(length)
    return rows


def register_packed_attention(transformers, torch):
    """Attention named "packed": causal inside each document of a row, whose ends are in `ends`."""
    def packed(module, query, key, value, mask, scaling=None, **_):
        del mask
        ends = module.config.ends
        groups = query.shape[1] != key.shape[1]
        if query.is_cuda:
            from torch.nn.attention.varlen import varlen_attn
            cumulative = torch.tensor(ends, dtype=torch.int32, device=query.device)
            longest = max(b - a for a, b in itertools.pairwise(ends))
            # Autocast leaves what rotary embeddings give in fp32, which flash attention does not take.
            kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
            q, k, v = (t[0].transpose(0, 1).to(kind) for t in (query, key, value))
            if groups:
                k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
            out = varlen_attn(q, k, v, cumulative, cumulative, longest, longest, scale=scaling, window_size=(-1, 0))
            return out[None], None
        outs = [torch.nn.functional.scaled_dot_product_attention(
                    *(t[:, :, a:b] for t in (query, key, value)), is_causal=True, scale=scaling, enable_gqa=groups)
                for a, b in itertools.pairwise(ends)]
        return torch.cat(outs, dim=2).transpose(1, 2), None

    transformers.AttentionInterface.register("packed", packed)


def main():
    args = arguments()
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    device = torch.device("cuda" if args.cuda else "cpu")
    lengths = args.lengths or [args.seq] * args.batch
    packs = args.lengths is not None
    rows = rows_of(lengths, args.micro_batch or max(lengths)) if packs else []
    if packs:
        register_packed_attention(transformers, torch)
    config = transformers.LlamaConfig(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        intermediate_size=args.ffn,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        max_position_embeddings=max(lengths),
        attn_implementation="packed" if packs else "sdpa",
        use_cache=False,
        tie_word_embeddings=False,
    )
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    called = torch.compile(model) if args.compile else model
    predicted = sum(length - 1 for length in lengths)

    def loss_of(tokens, row=None):
        """The sum of a row's losses, or of a batch's, by the step's tokens that have a next one."""
        if row is None:
            return called(input_ids=tokens, labels=tokens).loss
        model.config.ends = list(itertools.accumulate(row, initial=0))
        positions = torch.cat([torch.arange(length, device=device) for length in row])[None]
        labels = tokens.clone()
        labels[0, model.config.ends[:-1]] = -100  # no document's first token is predicted
        return called(input_ids=tokens, position_ids=positions, labels=labels, num_items_in_batch=predicted).loss

    def attention():
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if args.cudnn else contextlib.nullcontext()

    def synchronized():
        if args.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    seconds = []
    for step in range(args.steps + 1):
        batches = ([(torch.randint(args.vocab, (1, sum(row)), device=device), row) for row in rows]
                   if packs else [(torch.randint(args.vocab, (args.batch, args.seq), device=device), None)])
        start = synchronized()
        total = 0
        for tokens, row in batches:
            with torch.autocast(device.type, torch.bfloat16, enabled=args.precision == "bf16"), attention():
                loss = loss_of(tokens, row)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step > 0:
            seconds.append(synchronized() - start)
    step_seconds = statistics.median(seconds)
    result = {
        "tok_s": sum(lengths) / step_seconds,
        "step_seconds": step_seconds,
        "params": sum(p.numel() for p in model.parameters()),
        "loss": float(total),
    }
    if args.cuda:
        result["peak_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
