"""Models prepared once and kept outside the checkout: their folder, or None while they are not built."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path

from engine.environment import ROOT, environment_path


class Model(StrEnum):
    """What can be prepared; the value is the script in `e2e/engine/models/`."""

    SMOLLM2 = "smollm2"
    """SmolLM2-135M-Instruct as the package index has it: a 4-bit model, de-quantised to fp32. 30 layers, 45 KiB of KV
    a token, context 8192."""

    RANDOM = "random_weights"
    """A tiny Llama with random weights of large variance: its next token tells when one block is wrong."""


def prepare(model: Model) -> Path:
    """The model's folder, built if need be (a minute for `SMOLLM2`) and verified.

    Raises:
        RuntimeError: the build failed; its output is on standard error.
    """
    script = f"e2e/engine/models/{model.value}.py"
    command = [sys.executable, "tools/artefact.py", f"engine-{model.name.lower()}", "--input", script]
    command += ["--key", environment_path().name, "--", "python3", "e2e/engine/environment.py", script]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        raise RuntimeError(f"model {model.value}: expected {script} to build it, found exit status {built.returncode}")
    return Path(built.stdout.strip())
