"""Which stores this user signs, by the place where they are and by their ids: small files beside the key.

A program that can write a store can also take all its signatures away, so that it looks like one of an earlier version,
or put another store in its place. These records are what tells the difference: the store at this place has this id and
is signed. A place is a path as it was given and the same path without links, so that neither a new link nor a link in
the place of the file hides it. A record by the store's id is for the same file under another name: a hard link, a copy,
a folder that was moved. A record counts only with the key that it was made with. Records of files that are gone are
dropped after a while, once there are many.
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
from lyra.core.user_folders import user_folder

_FOLDER: Final = "stores"


class _KnownStore(msgspec.Struct):
    location: str
    id: str
    key_id: str


def known_ids(location: str, key_id: str) -> set[str | None]:
    """The ids of the stores that this key signs at this place, with and without links; None where none is known."""
    ids: set[str | None] = set()
    for place in _places(location):
        known = _read(place)
        is_this = known is not None and (known.location, known.key_id) == (place, key_id)
        ids.add(known.id if known is not None and is_this else None)
    return ids


def is_known(store_id: str, key_id: str) -> bool:
    """Whether this key signs the store with this id, wherever it is."""
    known = _read(_by_id(store_id))
    return known is not None and (known.id, known.key_id) == (store_id, key_id)


def remember(location: str, store_id: str, key_id: str) -> None:
    """From now on the store at this place has to be this one, and signed. Where nothing can be written, nothing is."""
    places = _places(location)
    for place in places:
        _write(place, _KnownStore(place, store_id, key_id))
    _write(_by_id(store_id), _KnownStore(places[-1], store_id, key_id))


def _places(location: str) -> list[str]:
    """A path as it was given and without links; a URL."""
    return list(dict.fromkeys([location, os.path.realpath(location)] if location.startswith("/") else [location]))


def _by_id(store_id: str) -> str:
    return f"id {store_id}"


def _read(name: str) -> _KnownStore | None:
    path = _path(name)
    try:
        return None if path is None else msgspec.json.decode(path.read_bytes(), type=_KnownStore)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(name: str, known: _KnownStore) -> None:
    path = _path(name)
    if path is None:
        return
    with suppress(OSError, ValueError):  # a path that is no text cannot be kept
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(known))
        os.replace(new, path)
        _drop_old(path.parent)


def _path(name: str) -> Path | None:
    folder = user_folder(os.environ)
    digest = blake2b(name.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    return None if folder is None else Path(folder, _FOLDER, f"{digest}.json")


def _drop_old(folder: Path) -> None:
    """Drop records of files that are gone, where there are very many records."""
    if len(os.listdir(folder)) <= KNOWN_STORES_MAX:
        return
    records = sorted(folder.iterdir(), key=lambda record: record.stat().st_mtime)
    before = SystemClock().now() - KNOWN_STORES_GONE_S
    for record in records[: max(0, len(records) - KNOWN_STORES_MAX)]:  # the oldest of them
        known = msgspec.json.decode(record.read_bytes(), type=_KnownStore)
        if record.stat().st_mtime < before and known.location.startswith("/") and not os.path.lexists(known.location):
            record.unlink()
