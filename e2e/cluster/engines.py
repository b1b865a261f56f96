"""What the examples' engines need from this machine: the vLLM environment and a model, as folders of the nodes."""

from __future__ import annotations

import os
from pathlib import Path

from engine.environment import install
from engine.models import Model, prepare

from cluster.kind import Mount
from cluster.settings import MODELS_ON_NODE, VLLM_ON_NODE

MODEL = "SmolLM2-135M-Instruct"


def readable(folder: Path) -> Path:
    """The folder, readable by the containers' users as well."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            mode = path.lstat().st_mode
            needed = 0o555 if path.is_dir() else 0o444
            if not path.is_symlink() and mode & needed != needed:
                path.chmod(mode | needed)
    return folder


def mounts() -> tuple[Mount, ...]:
    """The environment and the model, prepared when they are missing; read-only."""
    environment = install().parent.parent
    return (
        Mount(readable(environment), f"{VLLM_ON_NODE}/env", read_only=True),
        Mount(readable(prepare(Model.SMOLLM2)), f"{MODELS_ON_NODE}/{MODEL}", read_only=True),
    )


IN_EVERY_CONTAINER = (VLLM_ON_NODE, MODELS_ON_NODE)
