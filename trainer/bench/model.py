"""The model of both benches: random, 6 layers of 256 (8 heads over 4 of 32, SwiGLU 768), tied."""

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

VOCAB = 4096


def save_model(folder):
    """Writes it as a Hugging Face folder; no token of it ends a text."""
    torch.manual_seed(1)
    config = Qwen3Config(vocab_size=VOCAB, hidden_size=256, intermediate_size=768, num_hidden_layers=6,
                         num_attention_heads=8, num_key_value_heads=4, head_dim=32, max_position_embeddings=1024,
                         tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
