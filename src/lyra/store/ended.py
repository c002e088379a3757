"""States of ended processes, put away in segments: a snapshot has one short entry for hundreds of them.

A segment is a blob with the states of processes that ended; the entry in the snapshot, under a key that begins with
`ENDED`, names the blob by its digest and says which pids are in it. So a kernel that has ended a million processes
neither reads nor signs a million states to write the next snapshot, and what the blob holds is as sure as the entry.
`pack` makes one, `states_of` reads one, `load_all` reads a snapshot with everything that was put away. What a process
had spent counts above it once it is put away (`passed_on`): a reader that has both takes it from there (`subtract`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from lyra.errors import Corrupt
from lyra.store.protocol import Snapshot, Store

__all__ = ["ENDED", "Segment", "entry_of", "load_all", "pack", "segment_of", "states_of", "subtract"]

# Begins the key of a segment in a snapshot; no pid begins with ~. Segments of another form need another beginning: an
# older Lyra takes a name with ~ that it does not know for that of a newer one, and a known one that it cannot read for
# damage.
ENDED: Final = "~ended/"

_NUMBERED: Final = re.compile(r"p([0-9]{1,18})x*\Z").match  # pids that the kernel gives
_HASH_BYTES: Final = 6


class Segment(msgspec.Struct, array_like=True, frozen=True):
    """What a snapshot says of one segment."""

    digest: str  # of the blob
    count: int
    ended_at: float  # when the last of them ended
    first: int  # the lowest number in the pids that the kernel gave, and the highest; 0 where there is none
    last: int
    others: bytes  # hashes of the other pids, one behind the other

    def may_have(self, pid: str) -> bool:
        """Whether a pid may be in it; False is sure."""
        number = _NUMBERED(pid)
        if number is not None:
            return self.first <= int(number[1]) <= self.last
        if not self.others:
            return False
        wanted, place = _hash_of(pid), -1
        while True:
            place = self.others.find(wanted, place + 1)
            if place < 0 or place % _HASH_BYTES == 0:
                return place >= 0


_encode: Final = msgspec.msgpack.Encoder().encode
_segment: Final = msgspec.msgpack.Decoder(Segment).decode
_states: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def _hash_of(pid: str) -> bytes:
    return blake2b(pid.encode(errors="surrogatepass"), digest_size=_HASH_BYTES).digest()


def pack(states: Mapping[str, bytes]) -> bytes:
    """The content of the blob with these states."""
    return _encode(dict(sorted(states.items())))


def entry_of(digest: str, pids: Iterable[str], *, ended_at: float) -> bytes:
    """The entry of a segment in the snapshot."""
    pids = list(pids)
    numbers = [int(match[1]) for pid in pids if (match := _NUMBERED(pid)) is not None]
    others = b"".join(_hash_of(pid) for pid in pids if _NUMBERED(pid) is None)
    lowest, highest = (min(numbers), max(numbers)) if numbers else (0, 0)
    return _encode(Segment(digest, len(pids), ended_at, lowest, highest, others))


def segment_of(entry: bytes) -> Segment:
    try:
        return _segment(entry)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the snapshot has a segment of ended processes that cannot be read: {error}") from error


def states_of(get_blob: Callable[[str], bytes], segment: Segment) -> dict[str, bytes]:
    """Read the states of a segment."""
    try:
        return _states(get_blob(segment.digest))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the ended processes in blob {segment.digest} cannot be read: {error}") from error


def load_all(store: Store) -> Snapshot:
    """The snapshot of a store, with the states that were put away in it."""
    snapshot = store.load_snapshots()
    segments = [segment_of(data) for key, data in snapshot.states.items() if key.startswith(ENDED)]
    if not segments:
        return snapshot
    states = {key: data for key, data in snapshot.states.items() if not key.startswith(ENDED)}
    for segment in segments:
        states |= states_of(store.get_blob, segment)
    return Snapshot(snapshot.seq, states)


def subtract(spent: dict[str, int], passed_on: Mapping[str, int]) -> None:
    """Take from what a process spent what another below it had passed on to it."""
    for dimension, amount in passed_on.items():
        spent[dimension] = spent.get(dimension, 0) - amount
        if spent[dimension] <= 0:
            del spent[dimension]
