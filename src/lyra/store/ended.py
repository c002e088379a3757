"""States of ended processes, put away in segments: a snapshot has one short entry for thousands of them.

A segment is a blob with the states of processes that ended; its entry names the blob by its digest and says which pids
are in it. Where there are many, their entries are put into a list, a blob too, and so are the entries of lists: the
snapshot itself has a few entries of each level, under keys that begin with `ENDED`. So a kernel that has ended a
million processes neither reads nor signs a million states, or thousands of entries, to write the next snapshot, and
what a blob holds is as sure as its entry. `pack` makes a segment, `SegmentList` a list; `leaves_of` finds the segments
below an entry, `states_of` reads one, `load_all` reads a snapshot with everything that was put away. What a process had
spent counts above it once it is put away (`passed_on`): a reader that has both takes it from there (`subtract`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

from lyra.errors import Corrupt
from lyra.store.protocol import Snapshot, Store

# Begins the key of a segment or a list in a snapshot; no pid begins with ~. Those of another form need another
# beginning: an older Lyra takes a name with ~ that it does not know for that of a newer one, and a known one that it
# cannot read for damage.
ENDED: Final = "~ended/"

_NUMBERED: Final = re.compile(r"p([0-9]{1,18})x*\Z").match  # pids that the kernel gives
_HASH_BYTES: Final = 6


class Segment(msgspec.Struct, array_like=True, frozen=True):
    """The entry of one segment, or of a list."""

    digest: str  # of the blob
    count: int
    ended_at: float  # when the last of them ended
    first: int  # the lowest number in the pids that the kernel gave, and the highest; 0 where there is none
    last: int
    others: bytes  # hashes of the other pids, one behind the other; of a list one of them, or none
    level: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0  # how many lists lead from it to a segment, with itself
    whole_at: float = 0.0  # of a list: when the last process of one of its segments had ended, for the first of them

    @classmethod
    def describe(cls, digest: str, pids: Iterable[str], *, ended_at: float) -> Segment:
        """Describe the segment with these processes."""
        pids = list(pids)
        numbers = [int(match[1]) for pid in pids if (match := _NUMBERED(pid)) is not None]
        others = b"".join(_hash_of(pid) for pid in pids if _NUMBERED(pid) is None)
        lowest, highest = (min(numbers), max(numbers)) if numbers else (0, 0)
        return cls(digest, len(pids), ended_at, lowest, highest, others)

    def may_have(self, pid: str) -> bool:
        """Return whether a pid may be in it; False is sure. A list does not say it of a pid that a caller chose."""
        number = _NUMBERED(pid)
        if number is not None:
            return self.first <= int(number[1]) <= self.last
        if not self.others or self.level:
            return False
        wanted, place = _hash_of(pid), -1
        while True:
            place = self.others.find(wanted, place + 1)
            if place < 0 or place % _HASH_BYTES == 0:
                return place >= 0

    def has_any_before(self, time: float) -> bool:
        """Return whether all processes of one of its segments, or of it as one, ended before this time."""
        return (self.whole_at if self.level else self.ended_at) < time


class SegmentList(msgspec.Struct, array_like=True, frozen=True):
    """The content of the blob of a list."""

    segments: list[Segment]  # all of one level, the oldest first
    hashes: bytes  # of the pids that callers chose, in order; only where the segments are no lists

    @classmethod
    def from_segments(cls, segments: Sequence[Segment]) -> SegmentList:
        """Make a list of these."""
        others = b"" if segments[0].level else b"".join(segment.others for segment in segments)
        hashes = sorted(others[place : place + _HASH_BYTES] for place in range(0, len(others), _HASH_BYTES))
        return cls(list(segments), b"".join(hashes))

    def pack(self) -> bytes:
        """Return the content of the blob."""
        return _encode(self)

    def entry(self, digest: str) -> Segment:
        """Describe the list, whose blob has this digest."""
        numbered = [segment for segment in self.segments if segment.last]
        return Segment(
            digest,
            sum(segment.count for segment in self.segments),
            max(segment.ended_at for segment in self.segments),
            min((segment.first for segment in numbered), default=0),
            max((segment.last for segment in numbered), default=0),
            next((segment.others[:_HASH_BYTES] for segment in self.segments if segment.others), b""),
            self.segments[0].level + 1,
            min(segment.whole_at if segment.level else segment.ended_at for segment in self.segments),
        )


_encode: Final = msgspec.msgpack.Encoder().encode
_segment: Final = msgspec.msgpack.Decoder(Segment).decode
_list: Final = msgspec.msgpack.Decoder(SegmentList).decode
_states: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode
encode_entry: Callable[[Segment], bytes] = _encode


def _hash_of(pid: str) -> bytes:
    return blake2b(pid.encode(errors="surrogatepass"), digest_size=_HASH_BYTES).digest()


def is_among(pid: str, hashes: bytes) -> bool:
    """Return whether a pid that a caller chose may be one of those with the hashes of a list; False is sure."""
    if _NUMBERED(pid) is not None:
        return False
    wanted, count = _hash_of(pid), len(hashes) // _HASH_BYTES

    def hash_at(place: int) -> bytes:
        return hashes[place * _HASH_BYTES : (place + 1) * _HASH_BYTES]

    place = bisect_left(range(count), wanted, key=hash_at)
    return place < count and hash_at(place) == wanted


def pack(states: Mapping[str, bytes]) -> bytes:
    """Return the content of the blob with these states."""
    return _encode(dict(sorted(states.items())))


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


def list_of(get_blob: Callable[[str], bytes], digest: str, level: int) -> SegmentList:
    """Read a list of this level."""
    try:
        content = _list(get_blob(digest))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the list of ended processes in blob {digest} cannot be read: {error}") from error
    if any(segment.level != level - 1 for segment in content.segments):
        raise Corrupt(f"the list of ended processes in blob {digest} is not of level {level}")
    return content


def leaves_of(get_blob: Callable[[str], bytes], segment: Segment) -> Iterator[Segment]:
    """Yield the segments below an entry, or the one that it is."""
    if not segment.level:
        yield segment
        return
    for below in list_of(get_blob, segment.digest, segment.level).segments:
        yield from leaves_of(get_blob, below)


def load_all(store: Store) -> Snapshot:
    """Return the snapshot of a store, with the states that were put away in it."""
    snapshot = store.load_snapshots()
    entries = [segment_of(data) for key, data in snapshot.states.items() if key.startswith(ENDED)]
    if not entries:
        return snapshot
    states = {key: data for key, data in snapshot.states.items() if not key.startswith(ENDED)}
    for entry in entries:
        for segment in leaves_of(store.get_blob, entry):
            states |= states_of(store.get_blob, segment)
    return Snapshot(snapshot.seq, states)


def subtract(spent: dict[str, int], passed_on: Mapping[str, int]) -> None:
    """Take from what a process spent what another below it had passed on to it."""
    for dimension, amount in passed_on.items():
        spent[dimension] = spent.get(dimension, 0) - amount
        if spent[dimension] <= 0:
            del spent[dimension]
