"""Frames: the same messages as botocore reads, from the same bytes, however they are cut or damaged."""

from __future__ import annotations

import struct
from binascii import crc32
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import ModelError
from lyra.models.providers.bedrock import HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX, Frames
from tests.cases import cases

TIME, UUID = 8, 9


def sealed(head: bytes, payload: bytes) -> bytes:
    prelude = struct.pack("!II", len(head) + len(payload) + 16, len(head))
    message = prelude + struct.pack("!I", crc32(prelude)) + head + payload
    return message + struct.pack("!I", crc32(message))


def header(name: str, value: Any) -> bytes:
    encoded = bytes([len(name.encode())]) + name.encode()
    if isinstance(value, bool):
        return encoded + (b"\x00" if value else b"\x01")
    if isinstance(value, tuple):  # (type, bytes as they are)
        return encoded + bytes([value[0]]) + bytes(value[1])
    kind = 7 if isinstance(value, str) else 6
    data: bytes = value.encode() if isinstance(value, str) else value
    return encoded + bytes([kind]) + struct.pack("!H", len(data)) + data


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda name: len(name.encode()) < 255)
NUMBERS = st.sampled_from([(2, 1), (3, 2), (4, 4), (5, 8), (TIME, 8), (UUID, 16)]).flatmap(
    lambda kind: st.tuples(st.just(kind[0]), st.binary(min_size=kind[1], max_size=kind[1]))
)
VALUES = st.one_of(st.booleans(), st.text(max_size=50), st.binary(max_size=50), NUMBERS)
MESSAGES = st.tuples(st.dictionaries(NAMES, VALUES, max_size=5), st.binary(max_size=200)).map(
    lambda message: sealed(b"".join(header(*field) for field in message[0].items()), message[1])
)


def ours(data: bytes, cuts: list[int]) -> tuple[list[Any], bool]:
    """The messages, and whether it ended well."""
    frames = Frames()
    messages: list[Any] = []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    try:
        for start, end in pairwise(places):
            messages += frames.feed(data[start:end])
        if frames.broken is not None:
            raise frames.broken
    except ModelError:
        return messages, False
    return messages, True


def theirs(data: bytes) -> tuple[list[Any], bool]:
    from botocore.eventstream import EventStreamBuffer

    buffer = EventStreamBuffer()
    messages: list[Any] = []
    try:
        buffer.add_data(data)
        for message in buffer:
            messages.append((message.headers, message.payload))  # noqa: PERF401 (those before an error count)
    except Exception:
        return messages, False
    return messages, True


@settings(max_examples=cases(200), deadline=None)
@given(messages=st.lists(MESSAGES, max_size=5), cuts=st.lists(st.integers(0, 5000), max_size=10))
def test_the_same_messages_as_botocore(messages, cuts):
    """Every type of header, cut anywhere."""
    data = b"".join(messages)
    read, well = ours(data, cuts)
    assert well
    assert (read, well) == theirs(data)


@settings(max_examples=cases(300), deadline=None)
@given(
    messages=st.lists(MESSAGES, min_size=1, max_size=4),
    place=st.integers(0, 5000),
    bits=st.integers(1, 255),
    cuts=st.lists(st.integers(0, 5000), max_size=6),
)
def test_damage_is_found_where_botocore_finds_it(messages, place, bits, cuts):
    """The messages before it are given, however the bytes were cut."""
    data = bytearray(b"".join(messages))
    data[place % len(data)] ^= bits
    read, well = ours(bytes(data), cuts)
    assert not well
    assert (read, well) == theirs(bytes(data))


@pytest.mark.parametrize(
    "head",
    [
        header("a", "x") + header("a", "y"),  # twice
        b"\x05ab",  # a name that ends outside
        b"\x01a\x07\x00\x09x",  # a value that ends outside
        b"\x01a\x63",  # a type that there is not
        b"\x01a",  # no type
        b"\x01\xff\x00",  # a name that is no text
        b"\x01a\x04\x00",  # half a number
    ],
)
def test_headers_that_cannot_be_are_an_error(head):
    """Checksums right or not."""
    with pytest.raises(ModelError) as caught:
        Frames().feed(sealed(head, b"{}"))
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize(
    ("total", "head"), [(15, 0), (20, 10), (PAYLOAD_BYTES_MAX + 17, 0), (HEADERS_BYTES_MAX + 17, HEADERS_BYTES_MAX + 1)]
)
def test_lengths_that_cannot_be_are_refused_before_they_are_waited_for(total, head):
    """Memory stays bounded."""
    prelude = struct.pack("!II", total, head)
    with pytest.raises(ModelError):
        Frames().feed(prelude + struct.pack("!I", crc32(prelude)))
