#!/usr/bin/env python3
"""The engine and the trainer on a GPU, compared with PyTorch eager.

    python gpu.py WORKERS [--device cuda:0] [--repeats 3] [--only parity|decode|train] [--tiny]

WORKERS is target/debug/examples (`make bench-gpu`).

Parity, in f32 and bf16: log-probs of the fixture's row, and in f32 its greedy text, by both sides on
this device, against transformers' results on a CPU in f32. Our gap may be at most 4 times
theirs plus 1e-4; otherwise the script ends with 1.

Then decoding and training: a random model of Qwen3-0.6B's shape (596 million parameters) in bf16,
with the same files on both sides.

Decoding: prompts of 128 tokens, 128 new ones each, against generate(). "unlike": rows of 32 to 512
new tokens on our side only, twice as many as slots.

Training: the part of a GRPO step after sampling (forward, backward, AdamW, and on our side the
transfer of the weights to the engine), 8 prompts of 128 with 8 answers of 128 each. PyTorch runs
forward, backward and AdamW of the same rows under autocast with trained weights in f32, attention
sdpa, nothing compiled. Both sides compute 16 rows per pass, then only ours 64: PyTorch's logits of
64 rows did not fit next to our process in 80 GB. Our side computes a group's prompt once and so does
less work; tokens per second count the prompt for each row on both sides. The two sides take turns.
Wall-clock seconds, each taken when the device has finished its work: medians where both sides are
timed, else the shortest.

Without a CUDA device the script ends with 1. `--device cpu --tiny` (a model of 2 layers of 64, f32,
few tokens) shows that the script itself works; its figures have no meaning.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen3Config
from transformers.utils import logging

FIXTURE = pathlib.Path(__file__).resolve().parent.parent / "fixtures/models/qwen3"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
# Qwen3-0.6B's settings, from its config.json.
FULL = dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
            num_key_value_heads=8, head_dim=128)
TINY = dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workers", type=pathlib.Path, help="the folder of engine_work and train_work")
    parser.add_argument("--device", default="cuda:0", help="cpu, or cuda:N")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["parity", "decode", "train"])
    parser.add_argument("--tiny", action="store_true", help="a tiny model and little work: does the script itself work?")
    given = parser.parse_args()
    if torch.device(given.device).type == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device: this bench needs one (--device cpu --tiny tries the script itself)")
    if given.device == "cpu" and not given.tiny:
        sys.exit("--device cpu is for --tiny alone: make bench-engine and make bench-train are the benches of a CPU")
    return given


class Worker:
    """A process that answers each line with a line."""

    def __init__(self, *command):
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **work):
        self.process.stdin.write(json.dumps(work) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.process.args[0]} ended with {self.process.wait()}")
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Bench:
    def __init__(self, given):
        self.given, self.device = given, given.device

    def worker(self, name, *rest, dtype):
        """`rest`: folder, and slots or tokens of a micro-batch."""
        return Worker(self.given.workers / name, *rest, self.device, dtype)

    def net(self, folder, dtype, attention="sdpa"):
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).to(self.device)

    def clock(self):
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def logprobs(logits, ids):
    """[n, vocab] and [n + 1] -> [n], in f32."""
    return logits.float().log_softmax(-1).gather(1, ids[1:, None])[:, 0]


def parity(bench):
    """Returns true if our gap to the fixture is as small as PyTorch's on the same device."""
    expected, good = load_file(FIXTURE / "expected.safetensors"), True
    ids = expected["ids"].long()
    wanted = logprobs(expected["logits"][:-1], ids)
    for dtype, kind in DTYPES.items():
        trainer = bench.worker("train_work", FIXTURE, 4096, dtype=dtype)
        ours = torch.tensor(trainer.ask(score=[ids.tolist()])["logprobs"][0])
        trainer.end()
        with torch.no_grad():
            logits = bench.net(FIXTURE, kind).eval()(input_ids=ids[None].to(bench.device)).logits[0, :-1].cpu()
        gaps = [float((side - wanted).abs().max()) for side in (ours, logprobs(logits, ids))]
        fits = gaps[0] <= 4 * gaps[1] + 1e-4
        good &= fits
        print(f"parity {dtype:5} log-probs off by {gaps[0]:.1e}, PyTorch's by {gaps[1]:.1e}: {'good' if fits else 'TOO FAR'}", flush=True)
    engine = bench.worker("engine_work", FIXTURE, 8, dtype="f32")
    for row, prompt in enumerate(expected["prompts"].tolist()):
        prompt, greedy = [i for i in prompt if i >= 0], expected["greedy"][row].tolist()
        said = engine.ask(prompts=[prompt], new=[len(greedy)], greedy=True)["ids"][0]
        same = next((at for at, (a, b) in enumerate(zip(said, greedy)) if a != b), len(greedy))
        good &= said == greedy
        print(f"parity f32   greedy text of prompt {row}: {same} of {len(greedy)} tokens equal", flush=True)
    engine.end()
    return good


def save_model(folder, tiny, device):
    """Writes random weights in the trained dtype; no token ends a text."""
    torch.manual_seed(1)
    config = Qwen3Config(**(TINY if tiny else FULL), max_position_embeddings=2048, tie_word_embeddings=True, rms_norm_eps=1e-6,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                         bos_token_id=None, eos_token_id=None, pad_token_id=None)
    with torch.device(device):
        net = AutoModelForCausalLM.from_config(config)
    net.float().save_pretrained(folder)
    return config.vocab_size


def prompts(count, length, vocab):
    return torch.randint(0, vocab, (count, length), generator=torch.Generator().manual_seed(1))


def compare(name, repeats, ours, theirs, tokens):
    """Prints tokens per second of both sides, in turns, after a first run of each."""
    ours(), theirs()
    # Tiny work on a CPU may take less than the clock's resolution.
    pairs = [(max(ours(), 1e-6), theirs()) for _ in range(repeats)]
    here, there = (statistics.median(side) for side in zip(*pairs))
    ratios = sorted(b / a for a, b in pairs)
    print(f"{name:24} dyad {here:8.3f} s {tokens / here:9.0f} tokens/s   PyTorch {there:8.3f} s {tokens / there:9.0f} tokens/s   "
          f"{there / here:.2f}x ({ratios[0]:.2f}, {ratios[-1]:.2f})", flush=True)


@torch.no_grad()
def decode(bench, folder, vocab, dtype, batches, length, new):
    net = bench.net(folder, DTYPES[dtype]).eval()
    for count in batches:
        ids = prompts(count, length, vocab)
        engine = bench.worker("engine_work", folder, count, dtype=dtype)

        def ours():
            return engine.ask(prompts=ids.tolist(), new=[new] * count)["seconds"]

        def theirs():
            batch = ids.to(bench.device)
            begun = bench.clock()
            net.generate(batch, attention_mask=torch.ones_like(batch), do_sample=True, temperature=1.0, top_k=0,
                         max_new_tokens=new, min_new_tokens=new, pad_token_id=0)
            return bench.clock() - begun

        compare(f"decode {count} of {new}", bench.given.repeats, ours, theirs, count * new)
        engine.end()
    lengths = [new // 4 * (1 + row % 16) for row in range(2 * batches[-1])]
    engine = bench.worker("engine_work", folder, batches[-1], dtype=dtype)
    work = dict(prompts=prompts(len(lengths), length, vocab).tolist(), new=lengths)
    engine.ask(**work)
    here = engine.ask(**work)["seconds"]
    engine.end()
    print(f"{'decode unlike':24} dyad {here:8.3f} s {sum(lengths) / here:9.0f} tokens/s", flush=True)


def train(bench, folder, vocab, dtype, groups, samples, length, new, at_once, beside):
    rows, tokens, parts = groups * samples, groups * samples * (length + new), []
    trainer = bench.worker("train_work", folder, at_once * (length + new), dtype=dtype)
    work = dict(prompts=prompts(groups, length, vocab).tolist(), samples=samples, new=new)
    net = bench.net(folder, torch.float32).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, weight_decay=0.0)
    ids = prompts(rows, length + new, vocab).to(bench.device)
    advantages = torch.linspace(-1, 1, rows, device=bench.device)

    def ours():
        told = trainer.ask(**work)
        parts.append([told[f"{part}_seconds"] for part in ("sample", "gradient", "optimizer", "publish")])
        return told["seconds"] - told["sample_seconds"]

    def theirs():
        begun = bench.clock()
        for part, advantage in zip(ids.split(at_once), advantages.split(at_once)):
            with torch.autocast(torch.device(bench.device).type, dtype=torch.bfloat16, enabled=dtype == "bf16"):
                # The logits of answers only, as on our side.
                logits = net(input_ids=part, logits_to_keep=new + 1).logits[:, :-1]
            chosen = logits.float().log_softmax(-1).gather(2, part[:, length:, None])[..., 0]
            (-(advantage[:, None] * chosen).sum() / (rows * new)).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return bench.clock() - begun

    if beside:
        compare(f"train {rows} rows by {at_once}", bench.given.repeats, ours, theirs, tokens)
    else:
        here = min(ours() for _ in range(1 + bench.given.repeats))
        print(f"{f'train {rows} rows by {at_once}':24} dyad {here:8.3f} s {tokens / here:9.0f} tokens/s", flush=True)
    trainer.end()
    sample, *rest = (statistics.median(part) for part in zip(*parts[1:]))
    print(f"{'':24} dyad: gradient {rest[0]:.3f} s, optimizer {rest[1]:.3f} s, publishing {rest[2]:.3f} s; "
          f"before that sampling {rows * new / sample:.0f} tokens/s", flush=True)


def main():
    given = arguments()
    bench = Bench(given)
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    name = "cpu" if given.device == "cpu" else torch.cuda.get_device_name(given.device)
    print(f"{name}; torch {torch.__version__}{', tiny: the figures say nothing' if given.tiny else ''}")
    only = [given.only] if given.only else ["parity", "decode", "train"]
    good = "parity" not in only or parity(bench)
    with tempfile.TemporaryDirectory() as folder:
        vocab = save_model(folder, given.tiny, bench.device)
        dtype, length = ("f32", 16) if given.tiny else ("bf16", 128)
        if "decode" in only:
            decode(bench, folder, vocab, dtype, [1, 4] if given.tiny else [1, 8, 64, 256], length, length)
        groups, samples = (2, 4) if given.tiny else (8, 8)
        for at_once in [groups * samples // 4, groups * samples] if "train" in only else []:
            train(bench, folder, vocab, dtype, groups, samples, length, length, at_once, at_once < groups * samples)
    sys.exit(0 if good else "the fixture's numbers are not met on this device")


if __name__ == "__main__":
    main()
