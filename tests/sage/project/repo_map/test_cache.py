"""Outlines are kept between maps; a file that cannot be used counts as empty."""

from __future__ import annotations

import stat

import msgspec
import pytest

from lyra.sage.project.repo_map import worker as module
from lyra.sage.project.repo_map.outline import outline_of
from lyra.sage.project.repo_map.worker import MEMBER_MARK, CachedOutline, OutlineCache

OUTLINE = CachedOutline.from_outline(1, 2, outline_of("a.py", b"class A:\n    def f(self): return thing\n"))


@pytest.fixture
def path(tmp_path):
    cache = OutlineCache(str(tmp_path / "deep/x.map"))
    cache.outlines = {"a.py": OUTLINE}
    cache.save()
    return tmp_path / "deep/x.map"


def test_what_was_saved_is_there_again(path):
    outline = OutlineCache(str(path)).outlines["a.py"]
    assert outline == OUTLINE
    assert outline.names == f"A {MEMBER_MARK}f"
    assert [symbol.signature for symbol in outline.symbols] == ["class A", "def f(self)"]
    assert "thing" in outline.mentions.split(" ")


def test_the_file_is_for_the_user_alone(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["x.map"]


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x92\xa1a\xa1b", msgspec.msgpack.encode(["x", {}])])
def test_a_damaged_file_counts_as_empty(path, data):
    path.write_bytes(data)
    assert OutlineCache(str(path)).outlines == {}


def test_a_file_beyond_all_bounds_counts_as_empty(path, monkeypatch):
    monkeypatch.setattr(module, "_BYTES_MAX", 10)
    assert OutlineCache(str(path)).outlines == {}


def test_other_grammars_or_another_version_begin_anew(path, monkeypatch):
    assert OutlineCache(str(path), parsers=False).outlines == {}
    monkeypatch.setattr(module, "is_installed", lambda name: name == "go")
    assert OutlineCache(str(path)).outlines == {}
    monkeypatch.undo()
    monkeypatch.setattr(module, "__version__", "0.0")
    assert OutlineCache(str(path)).outlines == {}


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path):
    (tmp_path / "file").write_text("")
    cache = OutlineCache(str(tmp_path / "file/x.map"))
    cache.save()
    assert OutlineCache().outlines == {}
