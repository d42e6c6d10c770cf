#!/usr/bin/env python3
"""A whole GRPO step compared with TRL's GRPOTrainer.

    python train.py WORKER [REPEATS [LENGTH ...]]

WORKER is target/debug/examples/train_work (`make bench-train`).

Both sides use the same model folder, prompts and lengths, one thread, and f32 on a CPU. A step samples
64 completions of 64 tokens (4 prompts, 16 of each), rewards, trains, and has new weights to sample
from. The model is that of `make bench-engine`: 6 layers of 256, vocabulary 4096.

TRL runs with its fastest settings, which are printed: attention sdpa or eager, f32 matmul "highest"
or "medium", 64 or 16 completions per backward pass, and sampling by generate() or "paged". "paged"
is transformers' continuous batching with a cache for all completions; by default the cache takes
half of the memory.

The two sides take turns; medians and their ratio are printed. Seconds are each process's processor
time over all its threads, not wall-clock time. Memory is the peak above the process's memory with
the model loaded once. It therefore contains gradients, optimizer and caches.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["PYTHONWARNINGS"] = "ignore"

from model import VOCAB, save_model

NEW, SAMPLES, PROMPTS = 64, 16, 4
LENGTHS = {"16 of each, prompts of 215": 215, "16 of each, prompts of 20": 20}
MICRO_BATCH_TOKENS = 1300
PAGE = 256  # tokens of one page of transformers' paged cache


def save_folder(folder):
    """Writes the model and a tokenizer. No word ends a text: every completion has its 64 tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    save_model(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w0").save_pretrained(folder)


def prompts(length):
    import torch
    return torch.randint(2, VOCAB, (PROMPTS, length), generator=torch.Generator().manual_seed(1)).tolist()


def memory(key):
    line = next(l for l in pathlib.Path("/proc/self/status").read_text().splitlines() if l.startswith(key))
    return int(line.split()[1]) / 1024


def reward(completion_ids, **_):
    assert all(len(ids) == NEW for ids in completion_ids)
    return [sum(i < VOCAB // 2 for i in ids) / len(ids) for ids in completion_ids]


def trl(folder, length, attention, matmul, per_pass, sampling, repeats):
    """Runs steps of GRPOTrainer after one warm-up step. Each step waits for a line of stdin."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision(matmul)
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    loaded = memory("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    lines = [" ".join(f"w{i}" for i in ids) for ids in prompts(length)]
    # Continuous batching has no option for a least length.
    whole = {"eos_token_id": -1} if sampling == "paged" else {"min_new_tokens": NEW}
    pages = -(-(length + NEW) // PAGE)
    room = {"num_blocks": pages * SAMPLES * PROMPTS + 1, "max_batch_tokens": 1024, "max_requests_per_batch": SAMPLES * PROMPTS}
    config = GRPOConfig(
        use_transformers_continuous_batching=sampling == "paged", transformers_continuous_batching_config=room,
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, fp16=False, report_to="none", save_strategy="no",
        logging_strategy="no", disable_tqdm=True, gradient_checkpointing=False, dataloader_pin_memory=False,
        per_device_train_batch_size=per_pass, gradient_accumulation_steps=SAMPLES * PROMPTS // per_pass,
        num_generations=SAMPLES, max_completion_length=NEW, temperature=1.0, top_p=1.0, top_k=0, beta=0.0,
        generation_kwargs=whole, learning_rate=1e-5, lr_scheduler_type="constant", weight_decay=0.0,
        max_grad_norm=1.0, max_steps=repeats + 1, seed=1, shuffle_dataset=False)

    class Turns(TrainerCallback):
        begun = None

        def on_step_begin(self, *_, **__):
            sys.stdin.readline()
            self.begun = time.process_time()

        def on_step_end(self, *_, **__):
            seconds = time.process_time() - self.begun
            print(json.dumps({"seconds": seconds, "peak_mib": memory("VmHWM") - loaded}), flush=True)

    GRPOTrainer(model=net, reward_funcs=reward, args=config, callbacks=[Turns()],
                train_dataset=Dataset.from_dict({"prompt": lines * (repeats + 2)}),
                processing_class=AutoTokenizer.from_pretrained(folder)).train()


class Side:
    """A process that makes a step for each line."""

    def __init__(self, command, line=""):
        self.line = line
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.step()

    def step(self):
        self.process.stdin.write(self.line + "\n")
        self.process.stdin.flush()
        while not (answer := self.process.stdout.readline()).startswith("{"):
            if not answer:
                raise SystemExit(f"{self.process.args[0]} ended with {self.process.wait()}")
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


def trl_side(folder, length, setting, repeats):
    return Side([sys.executable, __file__, "--trl", folder, str(length), *map(str, setting), str(repeats)])


def fastest(folder, length):
    """Finds the fastest settings, one choice after the other, each by its first measured step."""
    best, choices = None, [("sdpa", "eager"), ("highest", "medium"), (SAMPLES * PROMPTS, SAMPLES), ("generate", "paged")]
    setting = [first for first, _ in choices]
    for place, other in [(None, None)] + [(place, other) for place, (_, other) in enumerate(choices)]:
        tried = list(setting)
        if place is not None:
            tried[place] = other
        # The second step: the first includes one-time set-up.
        side = trl_side(folder, length, tried, 1)
        seconds = side.step()["seconds"]
        side.end()
        print(f"  TRL with {tried[0]}, matmul {tried[1]!r}, {tried[2]} per pass, {tried[3]}: {seconds:.2f} s", flush=True)
        if best is None or seconds < best:
            best, setting = seconds, tried
    return setting


def main():
    import torch
    import transformers
    import trl as library
    binary, repeats = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    folder = tempfile.mkdtemp()
    save_folder(folder)
    print(f"{pathlib.Path('/proc/cpuinfo').read_text().split('model name')[1].splitlines()[0].strip(': 	')}, "
          f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; torch {torch.__version__}, "
          f"transformers {transformers.__version__}, TRL {library.__version__}; dyad: micro_batch_tokens {MICRO_BATCH_TOKENS}")
    for name, length in LENGTHS.items():
        if not any(name.endswith(f" {wanted}") for wanted in sys.argv[3:] or [length]):
            continue
        print(name, flush=True)
        setting = fastest(folder, length)
        work = json.dumps({"prompts": prompts(length), "samples": SAMPLES, "new": NEW})
        sides = (Side([binary, folder, str(MICRO_BATCH_TOKENS)], work), trl_side(folder, length, setting, repeats))
        pairs = [[side.step() for side in sides] for _ in range(repeats)]
        for side in sides:
            side.end()
        ours, theirs = ([pair[i] for pair in pairs] for i in (0, 1))
        median = lambda side: statistics.median(step["seconds"] for step in side)
        ratios = sorted(b["seconds"] / a["seconds"] for a, b in pairs)
        peak = lambda side: max(step["peak_mib"] for step in side)
        print(f"  dyad {median(ours):.2f} s, {peak(ours):.0f} MiB; TRL ({', '.join(map(str, setting[:3]))} per pass, {setting[3]}) "
              f"{median(theirs):.2f} s, {peak(theirs):.0f} MiB; {median(theirs) / median(ours):.2f}x "
              f"({ratios[0]:.2f}, {ratios[-1]:.2f}), medians of {repeats}", flush=True)


if sys.argv[1] == "--trl":
    trl(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]), sys.argv[7], int(sys.argv[8]))
else:
    main()
