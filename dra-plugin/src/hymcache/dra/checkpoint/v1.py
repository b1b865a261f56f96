"""Wire format of a claim's checkpoint, version 1.

A file is one JSON object: `format`, `version` (of the writer), `readableBy` (the oldest reader that understands it),
`body`, and `sha256` of the canonical JSON of all the rest.

The promise: a release reads every version up to its own. It reads a *newer* file as well when `readableBy` is not above
its own version - additions are ignored, and lost when it writes the claim again -, so going back one release keeps
every claim as long as the newer one only added fields. A file with a higher `readableBy` is left untouched.
Fields are never renamed or given another meaning within a version.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, Literal

from hymcache.crds.config import Access
from hymcache.crds.model import Coherence
from hymcache.dra.checkpoint.model import ClaimRecord, Phase, ShareRecord
from hymcache.dra.keys import ShareKey, claim_uid
from hymcache.dra.plan import ClaimRef, Scrub, Share, Wanted
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

FORMAT: Final = "hymcache.io/dra-claim"
VERSION: Final = 1


class Damaged(Exception):
    """The file is not what any release wrote."""


class TooNew(Exception):
    """A newer release wrote the file, and says that this one cannot understand it."""


class _Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", strict=False)


class WantedV1(_Wire):
    """What was opened."""

    blade: str
    fabric_region: str
    region_bytes: int
    uuid: str
    epoch: int
    domains: int
    domain: int
    init: bool
    coherence: Coherence
    chunk_bytes: int | None = None
    writable: bool
    scrub: Scrub | None = None


class ShareV1(_Wire):
    """One share."""

    request: str
    pool: str
    device: str
    share_id: str | None = None
    region: str
    access: Access
    phase: Phase
    wanted: WantedV1 | None = None


class ClaimV1(_Wire):
    """One claim."""

    namespace: str
    name: str
    uid: str
    boot_id: str
    ticket: str
    shares: list[ShareV1]


class EnvelopeV1(_Wire):
    """What surrounds a body of any version."""

    format: Literal["hymcache.io/dra-claim"]
    version: int
    readable_by: int
    sha256: str
    body: dict[str, Any]


def encode(record: ClaimRecord) -> bytes:
    """The file for `record`."""
    body = ClaimV1(
        namespace=record.ref.namespace,
        name=record.ref.name,
        uid=record.ref.uid,
        boot_id=record.boot_id,
        ticket=record.ticket,
        shares=[_share_out(entry) for entry in record.shares],
    ).model_dump(mode="json", by_alias=True, exclude_none=True)
    envelope = {"format": FORMAT, "version": VERSION, "readableBy": VERSION, "body": body}
    return json.dumps({**envelope, "sha256": digest(envelope)}, indent=1).encode() + b"\n"


def decode(data: bytes) -> ClaimRecord:
    """The record in a file.

    Raises:
        Damaged: not JSON, wrong checksum, or impossible values.
        TooNew: written by a newer release that this one cannot follow.
    """
    try:
        raw = json.loads(data)
        envelope = EnvelopeV1.model_validate(raw)
        if digest(raw) != envelope.sha256:
            raise Damaged(f"checksum: expected {envelope.sha256}, found {digest(raw)}")
        if envelope.readable_by > VERSION:
            raise TooNew(f"written as version {envelope.version}, readable from {envelope.readable_by}, not {VERSION}")
        body = ClaimV1.model_validate(envelope.body)
        ref = ClaimRef(body.namespace, body.name, claim_uid(body.uid))
        shares = tuple(_share_in(share, ref) for share in body.shares)
        return ClaimRecord(ref, body.boot_id, body.ticket, shares)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Damaged(f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from error
    except ValueError as error:
        raise Damaged(str(error)) from error


def digest(envelope: dict[str, Any]) -> str:
    """Checksum of a file: sha256 of its JSON without the checksum, keys sorted, no white space."""
    rest = {key: value for key, value in envelope.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _share_out(entry: ShareRecord) -> ShareV1:
    share = entry.share
    return ShareV1(
        request=share.request,
        pool=share.pool,
        device=share.device,
        share_id=share.share_id,
        region=share.region,
        access=share.access,
        phase=entry.phase,
        wanted=_wanted_out(entry.wanted) if entry.wanted else None,
    )


def _wanted_out(wanted: Wanted) -> WantedV1:
    return WantedV1(**{**vars(wanted), "scrub": None if wanted.scrub is Scrub.NONE else wanted.scrub})


def _share_in(wire: ShareV1, ref: ClaimRef) -> ShareRecord:
    share = Share(
        key=ShareKey.of(ref.uid, wire.share_id, wire.pool, wire.device),
        request=wire.request,
        pool=wire.pool,
        device=wire.device,
        share_id=wire.share_id,
        region=wire.region,
        access=wire.access,
    )
    return ShareRecord(share, wire.phase, _wanted_in(wire.wanted) if wire.wanted else None)


def _wanted_in(wire: WantedV1) -> Wanted:
    return Wanted(**{**dict(wire), "scrub": wire.scrub or Scrub.NONE})
