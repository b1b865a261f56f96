"""The folder of checkpoint files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hymcache.dra.checkpoint import v1
from hymcache.dra.checkpoint.model import ClaimRecord, Phase
from hymcache.dra.files import sync_folder, temporary_name, write_whole
from hymcache.dra.keys import UID, ClaimUID, ShareKey, claim_uid

SUFFIX = ".json"
QUARANTINE_SUFFIX = ".damaged"


@dataclass(frozen=True)
class Unreadable:
    """A claim whose file tells nothing: `reason` in words. A damaged one has been set aside, a too new one stays."""

    uid: ClaimUID
    reason: str


class Checkpoint:
    """One file per claim, written whole and made durable before the call returns.

    Callers hold the claim's lock for `put` and `remove`; reading needs none. Two plugin generations share the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, uid: ClaimUID) -> ClaimRecord | Unreadable | None:
        """The claim's record, None if there is none; a damaged file is set aside under another name."""
        path = self._path(uid)
        try:
            record = v1.decode(path.read_bytes())
            if record.ref.uid != uid:
                raise v1.Damaged(f"expected claim {uid}, found claim {record.ref.uid}")
            return record
        except FileNotFoundError:
            damaged = self._quarantined(uid)
            return Unreadable(uid, f"set aside as {damaged.name}") if damaged.exists() else None
        except v1.TooNew as error:
            return Unreadable(uid, str(error))
        except v1.Damaged as error:
            path.rename(self._quarantined(uid))
            return Unreadable(uid, f"{error}; set aside as {self._quarantined(uid).name}")

    def all(self) -> tuple[list[ClaimRecord], list[Unreadable]]:
        """Every claim on this node, sorted by UID, and those whose file cannot be read."""
        uids = {
            path.name.removesuffix(suffix) for suffix in (SUFFIX, QUARANTINE_SUFFIX) for path in self._files(suffix)
        }
        found = [self.get(claim_uid(uid)) for uid in sorted(uids) if UID.fullmatch(uid)]
        records = [entry for entry in found if isinstance(entry, ClaimRecord)]
        return records, [entry for entry in found if isinstance(entry, Unreadable)]

    def stands(self, record: ClaimRecord, key: ShareKey) -> bool:
        """Whether the node still holds the share by this record: neither given back nor begun anew since."""
        now = self.get(record.ref.uid)
        entry = now.entry(key) if isinstance(now, ClaimRecord) and now.ticket == record.ticket else None
        return entry is not None and entry.phase is not Phase.RELEASING

    def put(self, record: ClaimRecord) -> None:
        """Make `record` the claim's truth; what was set aside for the claim is dropped."""
        path = self._path(record.ref.uid)
        write_whole(path, v1.encode(record), temporary=temporary_name(path), durable=True)
        self._quarantined(record.ref.uid).unlink(missing_ok=True)

    def remove(self, uid: ClaimUID) -> None:
        """Forget the claim, readable or not."""
        for path in (
            self._path(uid),
            self._path(uid).with_name(temporary_name(self._path(uid))),
            self._quarantined(uid),
        ):
            path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def _files(self, suffix: str) -> list[Path]:
        return [path for path in self.folder.glob(f"*{suffix}") if not path.name.startswith(".")]

    def _path(self, uid: ClaimUID) -> Path:
        return self.folder / f"{uid}{SUFFIX}"

    def _quarantined(self, uid: ClaimUID) -> Path:
        return self.folder / f"{uid}{QUARANTINE_SUFFIX}"
