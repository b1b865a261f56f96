"""What can be set, read once: the node plugin's environment, then `kv_connector_extra_config.hymcache`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

ENVIRONMENT_PREFIX: Final = "HYMCACHE_"
EXTRA_CONFIG_KEY: Final = "hymcache"
SECTION: Final = f"kv_connector_extra_config.{EXTRA_CONFIG_KEY}"


class SettingsError(ValueError):
    """A setting has a value that cannot be used; the message names it, what was found and what is accepted."""


@dataclass(frozen=True)
class Settings:
    """The connector's settings. Field `x` is `HYMCACHE_X` in the environment and `x` in the extra config, which wins.

    The same values must hold in every process of an engine; vLLM's processes inherit both sources.
    """

    region: str | None = None
    """Where the region is: a device or file path, or `unix:/path.sock[?region=NAME]`, a socket that hands over its
    descriptor. In a pod the node plugin sets it. None: vLLM runs without the shared tier."""

    region_uuid: str | None = None
    """The region's UUID as composed. Another region at the same place is refused. None: not checked."""

    region_bytes: int | None = None
    """The region's size in bytes as composed. Another size is refused. None: not checked."""

    domain: int = 0
    """The part of the region that this host writes. One host only may write a domain; the region enforces it."""

    coherence: str | None = None
    """`software` or `hardware`, as declared for the blade. Another class is refused. None: not checked."""

    required: bool = False
    """True: refuse to start without a usable region. False: start without the tier, log why, count
    `hymcache:region_attached` 0. The default keeps a serving replica alive when its memory is not."""

    chunk_tokens: int = 256
    """Tokens in one object of the region, rounded down to whole engine blocks, at least one. Hits are whole chunks:
    larger ones cost up to this many recomputed tokens a prompt, smaller ones more directory entries and smaller
    copies. 256 keeps 99 % of a 32k prompt, and an object of a 7B-8B model at 32 MiB in bf16."""

    load_timeout_seconds: float = 10.0
    """A load that has not finished after this long is given up and its blocks are recomputed. Counted from submission,
    checked between chunks: a copy under way always ends before its blocks are released."""

    flush_seconds: float = 0.5
    """How long the engine waits for a store whose source blocks it wants to reuse, before it withdraws the chunks that
    are not yet being copied. A withdrawn chunk is not stored; the engine goes on."""

    probe_inline_keys: int = 64
    """Probes up to this many chunks are answered at once, longer ones in a thread. A hand-over to the thread costs a
    scheduler step; 64 chunks cost about 10 us. 0: always in the thread."""

    probe_seconds: float = 1.0
    """How long the answer of a probe is used. A request that waited longer than this in the queue is probed again, so
    that it finds what other hosts stored meanwhile and does not run into what they evicted."""

    failed_seconds: float = 60.0
    """How long a chunk whose load failed is not tried again by this engine, unless it stores the chunk itself. The
    region keeps its own record of damaged objects; this one covers every other reason, so that no request loops."""

    full_backoff_seconds: float = 0.5
    """How long no store is offered after the region had no room for one. The engine offers the chunks again later."""

    weights_id: str | None = None
    """Names the weights instead of hashing their files. Two engines share KV only when it is equal; set it when the
    weights are not files on disk, and never to one value for two sets of weights."""

    weights_epoch: str = "0"
    """Changed by whoever replaces weights in running engines, so that KV of the old ones is never used again."""


def _convert(name: str, kind: str, raw: Any, source: str) -> Any:
    problem = SettingsError(f"{source}: expected {kind.removesuffix(' | None')}, found {raw!r}")
    if kind.startswith("bool"):
        known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        value = raw if isinstance(raw, bool) else known.get(str(raw).lower())
        if value is None:
            raise problem
        return value
    try:
        return {"int": int, "float": float, "str": str}[kind.split(" ")[0]](raw)
    except (TypeError, ValueError):
        raise problem from None


def _check(settings: Settings) -> None:
    if settings.coherence not in (None, "software", "hardware"):
        raise SettingsError(f"HYMCACHE_COHERENCE: expected software or hardware, found {settings.coherence!r}")
    for name in ("chunk_tokens", "load_timeout_seconds", "probe_seconds"):
        if getattr(settings, name) <= 0:
            raise SettingsError(f"{name}: expected a number above 0, found {getattr(settings, name)!r}")
    for name in ("domain", "probe_inline_keys", "flush_seconds", "failed_seconds", "full_backoff_seconds"):
        if getattr(settings, name) < 0:
            raise SettingsError(f"{name}: expected a number of at least 0, found {getattr(settings, name)!r}")


def load(extra_config: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment, overridden by the section `hymcache` of vLLM's `kv_connector_extra_config`.

    Raises:
        SettingsError: a value of the wrong type or range, or a name in the section that is no setting.
    """
    environ = os.environ if environ is None else environ
    section = extra_config.get(EXTRA_CONFIG_KEY) or {}
    if not isinstance(section, Mapping):
        raise SettingsError(f"{SECTION}: expected an object, found {section!r}")
    kinds = {field.name: str(field.type) for field in fields(Settings)}
    unknown = sorted(set(section) - set(kinds))
    if unknown:
        raise SettingsError(f"{SECTION}: unknown {', '.join(unknown)}; known are {', '.join(kinds)}")
    values: dict[str, Any] = {}
    for name, kind in kinds.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        if section.get(name) is not None:
            values[name] = _convert(name, kind, section[name], f"{SECTION}.{name}")
        elif environ.get(variable):
            values[name] = _convert(name, kind, environ[variable], variable)
    settings = Settings(**values)
    _check(settings)
    return settings
