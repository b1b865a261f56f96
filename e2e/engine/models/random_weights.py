"""Write a small Llama model with random weights of large variance under `$OUT`: a corruption detector, not a talker.

With the tiny weights of `load_format=dummy` the logits are flat whatever the KV cache says. Here every block of the
cache moves the next token, so one wrong 4 KiB piece changes the output. Prompts are token ids; there is no tokenizer.
4 layers, hidden 256, 4 heads / 2 KV heads, vocabulary 1024: 2 KiB of fp32 KV a token and layer.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main(out: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=1024,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                weights.normal_(0, 1.0 if "embed" in name else (2.0 / weights.shape[1] ** 0.5))
    model.save_pretrained(out)


if __name__ == "__main__":
    main(Path(os.environ["OUT"]))
