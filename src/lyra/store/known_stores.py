"""Which stores this user signs, by the place where they are: one small file for each, beside the key.

A program that can write a store can also take all its signatures away, so that it looks like one of an earlier version,
or put another store in its place. These records are what tells the difference: the store at this place has this id and
is signed. A record counts only with the key that it was made with. Records of files that are gone are dropped after a
while, once there are many.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.core.limits import KNOWN_STORES_GONE_S, KNOWN_STORES_MAX
from lyra.core.user_folder import user_folder

__all__ = ["known_id", "remember"]

_FOLDER: Final = "stores"


class _KnownStore(msgspec.Struct):
    location: str
    id: str
    key_id: str


def known_id(location: str, key_id: str) -> str | None:
    """The id of the store that this key signs at this place; None where none is known."""
    path = _path(location)
    if path is None:
        return None
    try:
        known = msgspec.json.decode(path.read_bytes(), type=_KnownStore)
    except (OSError, msgspec.MsgspecError):
        return None
    return known.id if (known.location, known.key_id) == (location, key_id) else None


def remember(location: str, store_id: str, key_id: str) -> None:
    """From now on the store at this place has to be this one, and signed. Where nothing can be written, nothing is."""
    path = _path(location)
    if path is None:
        return
    with suppress(OSError, ValueError):  # a path that is no text cannot be kept
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(_KnownStore(location, store_id, key_id)))
        os.replace(new, path)
        _drop_old(path.parent)


def _path(location: str) -> Path | None:
    folder = user_folder(os.environ)
    name = blake2b(location.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    return None if folder is None else Path(folder, _FOLDER, f"{name}.json")


def _drop_old(folder: Path) -> None:
    """Drop records of files that are gone, where there are very many records."""
    records = sorted(folder.iterdir(), key=lambda record: record.stat().st_mtime)
    before = SystemClock().now() - KNOWN_STORES_GONE_S
    for record in records[: max(0, len(records) - KNOWN_STORES_MAX)]:  # the oldest of them
        known = msgspec.json.decode(record.read_bytes(), type=_KnownStore)
        if record.stat().st_mtime < before and known.location.startswith("/") and not os.path.lexists(known.location):
            record.unlink()
