"""These tests run in the vLLM environment (`make test-engine`); elsewhere they are not collected."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = [] if find_spec("vllm") and find_spec("torch") else ["test_*.py"]
sys.path.insert(0, str(Path(__file__).parent))

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
for name in [name for name in os.environ if name.startswith("HYMCACHE_") and name != "HYMCACHE_CACHE"]:
    del os.environ[name]

REGION_BYTES = 64 << 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """vLLM's configuration, built once: it takes seconds."""
    from harness import base_config

    return base_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def region(tmp_path: Path) -> Callable[..., Path]:
    """Format a region file and return its path."""
    from hymcache.region import Region

    def make(size: int = REGION_BYTES, *, chunk_bytes: int = 64 << 10, domains: int = 2, name: str = "region") -> Path:
        path = tmp_path / name
        Region.format(path, size=size, chunk_bytes=chunk_bytes, domains=domains)
        return path

    return make


@pytest.fixture
def engine(config: Any) -> Iterator[Callable[..., Any]]:
    """Start engines; all of them are closed at the end of the test."""
    from harness import Engine, transfer_config

    started = []

    def start(path: Path | None, /, *, blocks: int = 80, chunk_blocks: int = 4, **section: Any) -> Any:
        if path is not None:
            section["region"] = str(path)
        extra, policy = section.pop("extra", {}), section.pop("policy", "recompute")
        transfer = transfer_config(section, policy, blocks_per_chunk=chunk_blocks, **extra)
        started.append(Engine(config, transfer, blocks=blocks))
        return started[-1]

    yield start
    for one in started:
        one.close()
