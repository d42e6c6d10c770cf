#!/usr/bin/env python3
"""The engine and the trainer on a GPU, compared with PyTorch eager.

    python gpu.py WORKERS [--device cuda:0] [--repeats 3] [--only parity|decode|train]
                          [--shape 0.6b|1.7b|4b|8b] [--folder FOLDER] [--tiny]
    python gpu.py WORKERS --shape 8b --write FOLDER

WORKERS is target/debug/examples (`make bench-gpu`). --write only writes a random model with a
tokenizer to FOLDER; --folder measures that model instead of a new one.

Parity, in f32 and bf16: log-probs of the fixture's row, and in f32 its greedy text, by both sides
on this device, against transformers' results on a CPU in f32. Our gap may be at most 4 times theirs
plus 1e-4; otherwise the script ends with 1.

Then decoding and training: a random model of the shape of Qwen3-0.6B, or of --shape, in bf16, with
the same files on both sides.

Decoding: prompts of 128 tokens, 128 new ones each, against generate(). "unlike": rows of 32 to 512
new tokens on our side only, twice as many as slots.

Training: the part of a GRPO step after sampling (forward, backward, AdamW, and on our side the
transfer of the weights to the engine), 8 prompts of 128 with 8 answers of 128 each. PyTorch runs
forward, backward and AdamW of the same rows under autocast with trained weights in f32, attention
sdpa, nothing compiled. Both sides compute 16 rows per pass, then only ours 64: PyTorch's logits of
64 rows did not fit next to our process in 80 GB. Our side computes a group's prompt once and so
does less work; tokens per second count the prompt for each row on both sides. The two sides take
turns. From 4B on only ours runs: 64 rows per pass, layers computed again in the backward pass, and
at 8B the optimizer's state in host memory. Wall-clock seconds, each taken when the device has
finished its work: medians where both sides are timed, else the shortest. GiB of the device are the
most that our tensors took.

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
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, Qwen3Config
from transformers.utils import logging

FIXTURE = pathlib.Path(__file__).resolve().parent.parent / "fixtures/models/qwen3"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def qwen3(hidden, intermediate, layers, heads, tied=True):
    """The settings of a Qwen3 model, from its config.json."""
    return dict(vocab_size=151936, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=8, head_dim=128, tie_word_embeddings=tied)


SHAPES = {"0.6b": qwen3(1024, 3072, 28, 16), "1.7b": qwen3(2048, 6144, 28, 16), "4b": qwen3(2560, 9728, 36, 32),
          "8b": qwen3(4096, 12288, 36, 32, tied=False)}
# Models that PyTorch trains too, next to ours on the same GPU.
BOTH = ("0.6b", "1.7b")
TINY = dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, tie_word_embeddings=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workers", type=pathlib.Path, help="the folder of engine_work and train_work")
    parser.add_argument("--device", default="cuda:0", help="cpu, or cuda:N")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["parity", "decode", "train"])
    parser.add_argument("--shape", choices=SHAPES, default="0.6b", help="the model of decoding and training")
    parser.add_argument("--write", type=pathlib.Path, help="only write the model to this folder")
    parser.add_argument("--folder", type=pathlib.Path, help="the model that --write wrote")
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

    def worker(self, name, *rest, dtype, saves=()):
        """`rest`: folder, and slots or tokens of a micro-batch; `saves`: what saves memory in training."""
        return Worker(self.given.workers / name, *rest, self.device, dtype, *saves)

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


def save_model(folder, given):
    """Writes random weights; no token ends a text. Up to 1.7B they are in the trained dtype, f32."""
    torch.manual_seed(1)
    shape = TINY if given.tiny else SHAPES[given.shape]
    config = Qwen3Config(**shape, max_position_embeddings=2048, rms_norm_eps=1e-6,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                         bos_token_id=None, eos_token_id=None, pad_token_id=None)
    small = given.tiny or given.shape in BOTH
    with torch.device(given.device):
        net = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if small else torch.bfloat16)
    net.save_pretrained(folder)


def save_tokenizer(folder, vocab):
    """Writes a tokenizer with a token for each id: bytes, then pairs and triples of them."""
    alphabet, specials = sorted(ByteLevel.alphabet()), ["<|im_start|>", "<|im_end|>"]
    words, merges = list(alphabet), []
    for at in range(vocab - len(specials) - len(alphabet)):
        left, right = words[at // len(alphabet)], alphabet[at % len(alphabet)]
        merges.append((left, right))
        words.append(left + right)
    tokenizer = Tokenizer(BPE({word: at for at, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(specials)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(eos_token="<|im_end|>", chat_template=template)))


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


def train(bench, folder, vocab, dtype, groups, samples, length, new, at_once, both, saves=()):
    rows, tokens, parts = groups * samples, groups * samples * (length + new), []
    trainer = bench.worker("train_work", folder, at_once * (length + new), dtype=dtype, saves=saves)
    work = dict(prompts=prompts(groups, length, vocab).tolist(), samples=samples, new=new)

    def ours():
        told = trainer.ask(**work)
        parts.append([told[f"{part}_seconds"] for part in ("sample", "gradient", "optimizer", "publish")] + [told["device_mib"]])
        return told["seconds"] - told["sample_seconds"]

    name = f"train {rows} rows by {at_once}"
    if both:
        compare(name, bench.given.repeats, ours, step_of_pytorch(bench, folder, vocab, dtype, rows, length, new, at_once), tokens)
    else:
        here = min(ours() for _ in range(1 + bench.given.repeats))
        print(f"{name:24} dyad {here:8.3f} s {tokens / here:9.0f} tokens/s", flush=True)
    trainer.end()
    sample, *rest, _ = (statistics.median(part) for part in zip(*parts[1:]))
    most = parts[-1][-1]
    print(f"{'':24} dyad: gradient {rest[0]:.3f} s, optimizer {rest[1]:.3f} s, publishing {rest[2]:.3f} s; "
          f"before that sampling {rows * new / sample:.0f} tokens/s; {most / 1024:.1f} GiB of the device", flush=True)


def step_of_pytorch(bench, folder, vocab, dtype, rows, length, new, at_once):
    net = bench.net(folder, torch.float32).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, weight_decay=0.0)
    ids = prompts(rows, length + new, vocab).to(bench.device)
    advantages = torch.linspace(-1, 1, rows, device=bench.device)

    def step():
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

    return step


def main():
    given = arguments()
    bench = Bench(given)
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    name = "cpu" if given.device == "cpu" else torch.cuda.get_device_name(given.device)
    print(f"{name}; torch {torch.__version__}{', tiny: the figures say nothing' if given.tiny else ''}")
    if given.write:
        save_model(given.write, given)
        return save_tokenizer(given.write, vocab_of(given))
    only = [given.only] if given.only else ["parity", "decode", "train"]
    good = "parity" not in only or parity(bench)
    with tempfile.TemporaryDirectory() as own:
        folder = given.folder or own
        if not given.folder:
            save_model(folder, given)
        measure(bench, folder, only)
    sys.exit(0 if good else "the fixture's numbers are not met on this device")


def vocab_of(given):
    return (TINY if given.tiny else SHAPES[given.shape])["vocab_size"]


def measure(bench, folder, only):
    given, vocab = bench.given, vocab_of(bench.given)
    dtype, length = ("f32", 16) if given.tiny else ("bf16", 128)
    if "decode" in only:
        batches = [1, 4] if given.tiny else [1, 64] if given.shape == "8b" else [1, 8, 64, 256]
        decode(bench, folder, vocab, dtype, batches, length, length)
    groups, samples = (2, 4) if given.tiny else (8, 8)
    if "train" not in only:
        return
    if given.shape in BOTH:
        train(bench, folder, vocab, dtype, groups, samples, length, length, groups * samples // 4, True)
    saves = [] if given.shape in BOTH else ["recompute", "offload"] if given.shape == "8b" else ["recompute"]
    train(bench, folder, vocab, dtype, groups, samples, length, length, groups * samples, False, saves)


if __name__ == "__main__":
    main()
