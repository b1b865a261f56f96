"""What to keep when a test fails: every object that matters, the events in order, the components' logs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import yaml
from kubernetes.dynamic.exceptions import ResourceNotFoundError

from controlplane.api import CLAIM, CLASS, EVENT, LEASE, NODE, POD, SLICE, Api, ApiException, Kind, Object

OURS = tuple(Kind("hymcache.io/v1alpha1", name) for name in ("CXLFabric", "CXLBlade", "CXLRegion", "CXLNode"))
OBJECTS_MAX = 200  # of a kind: writing thousands takes longer than a test may
KINDS = (NODE, POD, CLAIM, CLASS, SLICE, LEASE, *OURS)


def _event_line(event: Object) -> str:
    series = event.get("series") or {}
    when = (
        series.get("lastObservedTime")
        or event.get("eventTime")
        or event.get("deprecatedLastTimestamp")
        or event["metadata"]["creationTimestamp"]
    )
    subject = event.get("regarding", {})
    count = series.get("count") or event.get("deprecatedCount") or 1
    return (
        f"{when} {event.get('type')} {event.get('reason')} {subject.get('kind')} "
        f"{subject.get('namespace', '')}/{subject.get('name')} x{count}: {event.get('note', '')}"
    )


def write(api: Api, folder: Path, logs: Iterable[Path] = ()) -> Path:
    """Write the state into `folder` and return it: one YAML file per kind, `events.txt`, copies of the logs.

    What cannot be read is said in the file instead: a dump never hides the failure that it was made for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        try:
            found = api.list(kind)
        except ResourceNotFoundError:
            continue
        except (ApiException, OSError) as error:
            (folder / f"{kind.name}.yaml").write_text(f"# not readable: {error}\n")
            continue
        for body in found:
            body["metadata"].pop("managedFields", None)
        if found:
            (folder / f"{kind.name}.yaml").write_text(yaml.safe_dump_all(found[:OBJECTS_MAX], sort_keys=False))
    try:
        (folder / "events.txt").write_text("\n".join(sorted(map(_event_line, api.list(EVENT)))) + "\n")
    except (ApiException, OSError) as error:
        (folder / "events.txt").write_text(f"not readable: {error}\n")
    for log in logs:
        if log.exists():
            shutil.copy(log, folder / log.name)
    return folder
