"""Kept contents: each once, read as it was kept, and no longer than it is needed."""

from __future__ import annotations

import errno
import os
import random

import pytest

from lyra.errors import Corrupt, StoreError, StoreFull
from lyra.sage.session.files import contents as contents_module
from lyra.sage.session.files.contents import KeptContents


def keep(contents: KeptContents, data: bytes, tmp_path) -> str:
    source = tmp_path / "source"
    source.write_bytes(data)
    fd = os.open(source, os.O_RDONLY)
    try:
        digest, size = contents.keep(fd)
    finally:
        os.close(fd)
    assert size == len(data)
    return digest


SAMPLES = [b"", b"a", b"\0" * 1_000, b"x" * (128 * 1024 - 1), b"x" * 128 * 1024, random.Random(1).randbytes(3_000_000)]


@pytest.mark.parametrize("clones", [True, False])
def test_what_is_kept_comes_back(tmp_path, clones, monkeypatch):
    """Empty, small and large; in this process and the next; whether the file system clones or copies."""
    if not clones:
        monkeypatch.setattr(contents_module, "_clone", lambda source, target: False)
    contents = KeptContents(tmp_path / "objects")
    digests = [keep(contents, data, tmp_path) for data in SAMPLES]
    assert [keep(contents, data, tmp_path) for data in SAMPLES] == digests
    assert contents.size_bytes == sum(map(len, SAMPLES))
    for reader in (contents, KeptContents(tmp_path / "objects")):
        assert [reader.read(digest) for digest in digests] == SAMPLES
    assert len(list((tmp_path / "objects").iterdir())) == 3  # a pack and two large contents
    contents.close()


def test_two_processes_have_packs_of_their_own(tmp_path):
    first, second = KeptContents(tmp_path / "objects"), KeptContents(tmp_path / "objects")
    digests = [keep(first, b"one", tmp_path), keep(second, b"two", tmp_path), keep(first, b"three", tmp_path)]
    third = KeptContents(tmp_path / "objects")
    assert [third.read(digest) for digest in digests] == [b"one", b"two", b"three"]
    first.close()
    second.close()


def test_a_torn_pack_is_read_up_to_there(tmp_path):
    """The contents before the torn one are sound; the torn one is missing."""
    contents = KeptContents(tmp_path / "objects")
    digests = [keep(contents, data, tmp_path) for data in (b"first" * 10, b"second" * 10)]
    contents.close()
    pack = tmp_path / "objects" / "pack-1"
    whole = pack.read_bytes()
    for length in range(len(whole)):
        pack.write_bytes(whole[:length])
        reader = KeptContents(tmp_path / "objects")
        with pytest.raises(Corrupt):
            reader.read(digests[1])
        if length >= len(whole) // 2:
            assert reader.read(digests[0]) == b"first" * 10


def test_damage_is_noticed(tmp_path):
    """A flipped byte of a content, small or large, and a content that is missing."""
    contents = KeptContents(tmp_path / "objects")
    digests = [keep(contents, data, tmp_path) for data in (b"small", b"x" * 200_000)]
    contents.close()
    for path in (tmp_path / "objects").iterdir():
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    for digest in (*digests, "00" * 20):
        with pytest.raises(Corrupt):
            KeptContents(tmp_path / "objects").read(digest)


def test_what_is_not_needed_is_removed(tmp_path):
    """From packs and large files; also what a killed process has left behind; the rest can be read, and more kept."""
    contents = KeptContents(tmp_path / "objects")
    small = [keep(contents, bytes([number]) * 1_000, tmp_path) for number in range(10)]
    large = [keep(contents, bytes([number]) * 200_000, tmp_path) for number in range(3)]
    (tmp_path / "objects" / "new-1-1").write_bytes(b"left behind")
    contents.keep_only({small[3], large[1]})
    assert contents.size_bytes == 201_000
    assert sum(path.stat().st_size for path in (tmp_path / "objects").iterdir()) < 201_100
    more = keep(contents, b"more", tmp_path)
    for reader in (contents, KeptContents(tmp_path / "objects")):
        assert reader.read(small[3]) == b"\3" * 1_000
        assert reader.read(large[1]) == b"\1" * 200_000
        assert reader.read(more) == b"more"
        with pytest.raises(Corrupt):
            reader.read(small[4])
    contents.close()


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    """As StoreFull; other failures as StoreError."""
    contents = KeptContents(tmp_path / "objects")
    full = ((number, StoreFull) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    for number, kind in (*full, (errno.EIO, StoreError)):

        def refuse(*_, number=number):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "pwrite", refuse)
        with pytest.raises(kind) as error:
            keep(contents, b"data", tmp_path)
        assert type(error.value) is kind
    contents.close()
