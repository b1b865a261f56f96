"""What the examples' engines need from this machine: the vLLM environment and a model, as folders of the nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from engine.environment import ROOT, install
from engine.models import Model, prepare

from cluster.command import CommandError
from cluster.kind import Mount
from cluster.settings import MODELS_ON_NODE, VLLM_ON_NODE

MODEL = "SmolLM2-135M-Instruct"
LEARN = """
import os
os.environ["VLLM_CACHE_ROOT"] = os.environ["OUT"]
from vllm.model_executor.models.registry import ModelRegistry
ModelRegistry.models["LlamaForCausalLM"].inspect_model_cls()
"""
"""Makes vLLM write down what it knows of the model's class; a server without that starts a process to learn it."""
CACHE_ON_NODE = f"{VLLM_ON_NODE}/cache"


def readable(folder: Path) -> Path:
    """The folder, readable by the containers' users as well."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            mode = path.lstat().st_mode
            needed = 0o555 if path.is_dir() else 0o444
            if not path.is_symlink() and mode & needed != needed:
                path.chmod(mode | needed)
    return folder


def learned(environment: Path) -> Path:
    """vLLM's cache folder with the model's class in it, from the artefact cache.

    Raises:
        CommandError: vLLM could not be asked; what it said is on standard error.
    """
    command = [sys.executable, "tools/artefact.py", "engine-class", "--key", environment.name]
    command += ["--", "python3", "e2e/engine/environment.py", "-c", LEARN]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise CommandError("vLLM did not tell about the model's class; what it said is above")
    return Path(done.stdout.strip())


def mounts() -> tuple[Mount, ...]:
    """The environment, what it knows of the model's class, and the model, prepared when they are missing; read-only."""
    environment = install().parent.parent
    return (
        Mount(readable(learned(environment)), CACHE_ON_NODE, read_only=True),
        Mount(readable(environment), f"{VLLM_ON_NODE}/env", read_only=True),
        Mount(readable(prepare(Model.SMOLLM2)), f"{MODELS_ON_NODE}/{MODEL}", read_only=True),
    )


IN_EVERY_CONTAINER = (VLLM_ON_NODE, MODELS_ON_NODE)
VARIABLES = {"VLLM_CACHE_ROOT": CACHE_ON_NODE}
"""What every container gets of this; an image that has vLLM in it has its own."""
