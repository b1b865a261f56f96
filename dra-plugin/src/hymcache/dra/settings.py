"""Everything that can be set, read once at start from `HYMCACHE_DRA_*` variables and flags; flags win."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, Literal

from hymcache.crds import names
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

PROGRAM: Final = "hymcache-dra-plugin"


class Settings(BaseSettings):
    """One plugin on one node. Paths are host paths and must be mounted at the same place in the plugin's container."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix="HYMCACHE_DRA_",
        frozen=True,
        cli_kebab_case=True,
        extra="ignore",
    )

    node_name: str = Field(
        min_length=1,
        max_length=253,
        description="Name of this Node. From the downward API (spec.nodeName); no default, since a wrong one would "
        "make the plugin speak for another host.",
    )
    pod_uid: str = Field(
        default="",
        max_length=63,
        pattern=r"^[A-Za-z0-9-]*$",
        description="UID of the plugin's pod. It goes into socket names, so that the old and the new pod of a rolling "
        "update serve side by side; empty (default) outside a cluster.",
    )
    driver: str = Field(
        default=names.DRIVER,
        max_length=63,
        description="DRA driver name. Another one only to run two installations on one cluster.",
    )
    backend: Literal["memfd"] = Field(
        default="memfd",
        description="How the node gets at a region: `memfd`, a descriptor handed over by the appliance's cable socket.",
    )
    plugin_dir: Path = Field(
        default=Path("/var/lib/kubelet/plugins/hymcache.io"),
        description="Checkpoints, locks, the service socket and the folders with the pods' sockets. It must survive a "
        "restart of the plugin. Under the kubelet's root, where the kubelet looks for the service socket.",
    )
    registry_dir: Path = Field(
        default=Path("/var/lib/kubelet/plugins_registry"),
        description="Where the kubelet watches for registration sockets.",
    )
    cdi_dir: Path = Field(
        default=Path("/var/run/cdi"),
        description="Where the container runtime looks for dynamic CDI files. Some distributions move it.",
    )
    cable_dir: Path = Field(
        default=Path("/var/lib/hymcache/cables"),
        description="Folder with one socket `<blade>.sock` for each appliance that this host is cabled to.",
    )
    boot_id_path: Path = Field(
        default=Path("/proc/sys/kernel/random/boot_id"),
        description="File whose content changes with each boot of the host. Nodes that are containers of one machine "
        "(kind) share the kernel's, and need a file of their own.",
    )
    kubeconfig: Path | None = Field(
        default=None,
        description="Kubeconfig file; none (default) uses the pod's service account, whose token is re-read as it "
        "rotates.",
    )
    prepare_wait_seconds: float = Field(
        default=35.0,
        gt=0,
        le=43,
        description="How long Prepare waits for the operator and for the region's superblock. The kubelet cuts a call "
        "at 45 s but retries only after 60-90 s, so waiting beats failing early.",
    )
    unprepare_wait_seconds: float = Field(
        default=4.0,
        gt=0,
        le=40,
        description="How long Unprepare waits for a call that holds the claim. A slow Unprepare delays the pod's end.",
    )
    api_timeout_seconds: float = Field(
        default=5.0, gt=0, le=30, description="Limit of one request to the API server, connect and read each."
    )
    cable_timeout_seconds: float = Field(
        default=5.0, gt=0, le=30, description="Limit of one request to a cable socket, and of joining the answer."
    )
    sync_seconds: float = Field(
        default=5.0,
        gt=0,
        le=60,
        description="Pause between two looks at the own claims, cables and regions: repairs what is missing and "
        "finishes what failed. Cables are reported to the kubelet at this pace.",
    )
    heartbeat_seconds: float = Field(
        default=10.0,
        gt=0,
        le=300,
        description="Pause between two heartbeats of the CXLNode. The operator unlabels a node whose heartbeat is old.",
    )
    counters_seconds: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="Pause between two reports of a region's used bytes, hits and misses when nothing else changed. "
        "Each is one write per region and node, hence slower than the heartbeat.",
    )
    health_timeout_seconds: int = Field(
        default=30, ge=10, le=600, description="Age at which the kubelet holds a device's health for unknown."
    )
    stop_grace_seconds: float = Field(
        default=40.0,
        ge=0,
        le=600,
        description="How long running calls may finish after SIGTERM; above prepare_wait_seconds, below the pod's "
        "terminationGracePeriodSeconds.",
    )
    workers: int = Field(
        default=64,
        ge=4,
        le=1024,
        description="Calls served at once. A waiting Prepare holds one; a node has at most as many as pods starting.",
    )
    listen: str = Field(
        default="0.0.0.0:9464",
        pattern=r"^$|^[^:]*:\d+$",
        description="Address of /metrics, /healthz and /readyz; empty switches it off.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line that is written. Lines are JSON, on standard error."
    )


def load(argv: Sequence[str] | None = None) -> Settings:
    """The settings from flags and environment.

    Raises:
        SystemExit: a flag or a variable cannot be used; what was expected and found is on standard error.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return Settings(_cli_parse_args=arguments, _cli_prog_name=PROGRAM)  # type: ignore[call-arg]  # from sources
    except ValidationError as error:
        for wrong in error.errors(include_url=False):
            name = "_".join(map(str, wrong["loc"]))
            found = "nothing" if wrong["type"] == "missing" else repr(wrong["input"])
            sys.stderr.write(
                f"{PROGRAM}: --{name.replace('_', '-')} or HYMCACHE_DRA_{name.upper()}: {wrong['msg']}, found {found}\n"
            )
        raise SystemExit(2) from error
