"""The standing of a store: signed with this user's key, not signed, or signed with another key.

`open_signed` is what a kernel calls when it owns a store: an empty one is signed from its first row on, a signed one is
checked as it is read, and one that is not signed is read and written without signatures, which the kernel tells. One
that another key has signed is not opened, and a command of Lyra does not open one without signatures either, unless it
lies in the user's data folder: its maker decides what its processes do, where it posts and whose keys it lets in, until
a person adopts it. `vouch` is the same for a caller that only reads, which may read such a store; `refuse_foreign` is
for one that goes by what it reads. A store that was signed here before, and is not any more or is another one, is
refused. Stores in memory are never signed, because no other program can reach them.

A program that can write a store can also take all its signatures away, so that it looks like one of an earlier version,
or put another store in its place. Small files beside the user's key show the difference: the store at this place has
this id and is signed. A place is a path as it was given and the same path without links, so that neither a new link nor
a link in the place of the file hides it. A record by the store's id is for the same file under another name: a hard
link, a copy, a folder that was moved. A record counts only with the key that it was made with. Records of files that
are gone are dropped after a while, once there are many.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lyra.core.clock import SystemClock
from lyra.core.limits import KNOWN_STORES_GONE_S, KNOWN_STORES_MAX
from lyra.core.own_files import obeys_unsigned_store
from lyra.core.user_folders import user_folder
from lyra.errors import Tampered
from lyra.store.protocol import Store
from lyra.store.signature import Signer, load_signer
from lyra.store.signing import RowAfter, SigningStore

# ---------------------------------------------------------------- known stores

_FOLDER: Final = "stores"


class _KnownStore(msgspec.Struct):
    location: str
    id: str
    key_id: str


def read_store_ids(location: str, key_id: str) -> set[str | None]:
    """Return the ids of the stores that this key signs at this place; None in it where none is known."""
    ids: set[str | None] = set()
    for place in _places(location):
        known = _read_record(place)
        is_this = known is not None and (known.location, known.key_id) == (place, key_id)
        ids.add(known.id if known is not None and is_this else None)
    return ids


def is_known(store_id: str, key_id: str) -> bool:
    """Return whether this key signs the store with this id, wherever it is."""
    known = _read_record(_by_id(store_id))
    return known is not None and (known.id, known.key_id) == (store_id, key_id)


def remember(location: str, store_id: str, key_id: str) -> None:
    """Note that the store at this place has to be this one, and signed. Where nothing can be written, nothing is."""
    places = _places(location)
    for place in places:
        _write_record(place, _KnownStore(place, store_id, key_id))
    _write_record(_by_id(store_id), _KnownStore(places[-1], store_id, key_id))


def _places(location: str) -> list[str]:
    """Return a path as it was given and without links, or a URL."""
    return list(dict.fromkeys([location, os.path.realpath(location)] if location.startswith("/") else [location]))


def _by_id(store_id: str) -> str:
    return f"id {store_id}"


def _read_record(name: str) -> _KnownStore | None:
    path = _record_path(name)
    try:
        return None if path is None else msgspec.json.decode(path.read_bytes(), type=_KnownStore)
    except (OSError, msgspec.MsgspecError):
        return None


def _write_record(name: str, known: _KnownStore) -> None:
    path = _record_path(name)
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


def _record_path(name: str) -> Path | None:
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


STANDINGS: Final[dict[str, str]] = {
    "signed": "signed with your key",
    "empty": "empty: signed with your key from the first row on",
    "unsigned": "not signed: an earlier version wrote it, or a program without a key",
    "other_key": "signed with the key of another user or machine",
    "no_key": "not checked: you have no key",
    "stripped": "no longer signed with your key, as it was before",
    "replaced": "not the store that was signed at this place before",
    "out_of_reach": "not signed: no other program can write it",
}


class StoreStanding(NamedTuple):
    """One of STANDINGS, the user's key, whether the store is known to be at this place, and the id of the key that
    signs it."""

    name: str
    signer: Signer | None = None
    is_here: bool = False
    signed_by: str = ""

    @property
    def is_signed(self) -> bool:
        """Whether what is read is checked and what is written is signed."""
        return self.name in ("signed", "empty")

    @property
    def is_refused(self) -> bool:
        return self.name in ("stripped", "replaced")

    @property
    def words(self) -> str:
        return STANDINGS[self.name]


def standing_of(store: Store | SigningStore, *, make_key: bool = False) -> StoreStanding:
    """Return how a store stands, as far as its record of signatures says: reading it shows whether they are right."""
    if not isinstance(store, SigningStore):
        return StoreStanding("out_of_reach")
    signer = store.own_signer or load_signer(make=make_key)
    # In this order: its owner writes the record of signatures, and where the store is, before the first row.
    is_empty = store.holds_nothing()
    signed_by = store.get_signing_key()
    if signer is None:
        return StoreStanding("no_key", signed_by=signed_by)
    # Tell whether this place is known to have this store, and whether it is known to have another one. A file in which
    # nothing is written is a new one: the one that was here was deleted.
    own, unknown = {store.file_id()}, {None}
    known = read_store_ids(store.location, signer.key_id)
    if known - own - unknown:
        is_new = not store.keys_of_file()
        known = (
            {None} if is_new else read_store_ids(store.location, signer.key_id)
        )  # its owner may have begun meanwhile
    is_here, is_another = known == own, bool(known - own - unknown)
    if is_another:
        name = "replaced"
    elif is_empty:
        name = "empty"
    elif signed_by == signer.key_id:
        name = "signed"
    elif is_here or is_known(store.file_id(), signer.key_id):
        name = "stripped"
    else:
        name = "other_key" if signed_by else "unsigned"
    return StoreStanding(name, signer, is_here, signed_by)


def vouch(store: Store | SigningStore, *, make_key: bool = False) -> StoreStanding:
    """Check what is read from the store from now on, if it is signed; Tampered where it should be and is not."""
    standing = standing_of(store, make_key=make_key)
    if not isinstance(store, SigningStore):
        return standing
    if standing.is_refused:
        raise Tampered(
            f"{store.location} is {standing.words}",
            hint=f"restore it from a backup, or look at the rights in it: lyra store adopt {store.location}",
            location=store.location,
            standing=standing.name,
        )
    store.sign_with(standing.signer if standing.is_signed else None)
    return standing


def open_signed(store: Store, epoch: int) -> StoreStanding:
    """`vouch` by the owner of the store: an empty one is signed from now on, and the place of a signed one is kept."""
    standing = vouch(store, make_key=True)
    if standing.name == "other_key" and isinstance(store, SigningStore) and store.own_signer is not None:
        standing = _take_over_own(store, standing, epoch)
    refuse_foreign(store, standing)
    if standing.signer is not None and isinstance(store, SigningStore) and standing.is_signed:
        if standing.name == "empty":
            store.begin_signing(epoch)
        if not standing.is_here:
            _remember(store, standing.signer)
    return standing


def _take_over_own(store: SigningStore, standing: StoreStanding, epoch: int) -> StoreStanding:
    """Sign a store that has a key of its own with that one, where this user's key has signed it so far, as a store has
    been that was moved into a cluster. Tampered where it is not as this user signed it."""
    own = load_signer(make=False)
    if own is None or own.key_id != standing.signed_by:
        return standing
    store.sign_with(own)
    faults = store.check_signatures()
    if faults:
        raise Tampered(f"{store.location}: {faults[0]}", location=store.location, standing=standing.name)
    assert store.own_signer is not None
    adopt(store, store.own_signer, epoch, store.contents().fingerprint)
    return vouch(store)


def refuse_foreign(store: Store, standing: StoreStanding) -> None:
    """Raise Tampered for a store whose maker may be another user, so that nothing in it counts before it is adopted."""
    sentence = f"{store.location} is {standing.words}"
    hint = f"look at what would go on from it, and take it over: lyra store adopt {store.location}"
    if standing.name == "no_key" and standing.signed_by:
        sentence = f"{store.location} is signed, and you have no key to check it with: {standing.signed_by}"
        hint = "HOME or XDG_CONFIG_HOME has to name the folder in which .config/lyra/store.key or lyra/store.key is"
    elif standing.name == "other_key":
        sentence = f"{sentence}: {standing.signed_by}"
    elif standing.name != "unsigned" or obeys_unsigned_store(store.location):
        return
    raise Tampered(sentence, hint=hint, location=store.location, standing=standing.name)


def adopt(
    store: SigningStore, signer: Signer, epoch: int, fingerprint: bytes, *, more: Sequence[RowAfter] = ()
) -> None:
    """Sign a store whose `contents` with this fingerprint the caller has shown to a person, and `more` rows after
    them."""
    store.sign_with(signer)
    store.sign_all(epoch, fingerprint, more)
    _remember(store, signer)


def _remember(store: SigningStore, signer: Signer) -> None:
    """Keep the place of the store, where all that is in its file is signed."""
    if store.keys_of_file() <= {signer.key_id}:
        remember(store.location, store.file_id(), signer.key_id)
