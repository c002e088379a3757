"""Watched files: read again when they change, the last correct version stays, and no file can make the reader wait."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lyra.core.checking.check import Mistake
from lyra.core.checking.watched_files import WatchedFiles, read_plain_file
from lyra.testing import SimClock


def number(data: bytes, path: str) -> tuple[int | None, Sequence[Mistake]]:
    try:
        return int(data), []
    except ValueError:
        return None, [Mistake(path, 1, 1, "it is no number")]


def watched(**options: object) -> WatchedFiles[int]:
    return WatchedFiles(number, bytes_max=10, **options)  # type: ignore[arg-type]


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    files = watched()
    assert files.refresh([str(path)])
    assert not files.refresh([str(path)])
    path.write_text("2")
    assert files.refresh([str(path)])
    assert list(files.values()) == [(str(path), 2)]


def test_a_file_with_a_mistake_keeps_its_last_good_version_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    files = watched()
    files.refresh([str(path)])
    path.write_text("x")
    assert files.refresh([str(path)])
    assert files.value(str(path)) == 1
    assert [str(mistake) for mistake in files.mistakes(str(path))] == [
        f"{path}:1: it is no number; its last good version is used"
    ]
    os.remove(path)
    assert files.refresh([str(path)])
    assert files.value(str(path)) == 1
    assert "No such file" in files.mistakes(str(path))[0].message


def test_a_file_that_is_not_listed_any_more_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    files = watched()
    files.refresh([str(path)])
    assert files.refresh([])
    assert (files.value(str(path)), files.mistakes(str(path)), files.paths) == (None, (), ())


def test_a_file_that_is_refused_has_no_value_not_even_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    files = watched(accept=lambda path, data: data == b"1")
    files.refresh([str(path)])
    assert (files.value(str(path)), files.accepted) == (1, True)
    path.write_text("2")
    files.refresh([str(path)])
    assert (files.value(str(path)), files.accepted) == (None, False)
    assert "not trusted" in files.mistakes(str(path))[0].message


def test_a_change_within_one_tick_of_the_time_stamp_is_seen(tmp_path: Path) -> None:
    """A file that was written just now is read again, although its stamp is the same."""
    path = tmp_path / "a"
    path.write_text("1")
    state = path.stat()
    files = watched(clock=SimClock(state.st_mtime))
    files.refresh([str(path)])
    path.write_text("2")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    files.refresh([str(path)])
    assert files.value(str(path)) == 2


def test_pipes_links_and_large_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("1" * 11)
    (tmp_path / "plain").write_text("1")
    os.symlink(tmp_path / "plain", tmp_path / "link")
    names = [str(tmp_path / name) for name in ("pipe", "large", "link", "bad\0name")]
    files = watched(follow_links=False)
    files.refresh(names)
    assert [files.value(name) for name in names] == [None] * 4
    assert all(files.mistakes(name) for name in names)
    follows = watched()
    follows.refresh([names[2]])
    assert follows.value(names[2]) == 1


def test_a_plain_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    os.symlink(path, tmp_path / "link")
    assert read_plain_file(str(path), 5) == b"12345"
    for name, size_max in ((path, 4), (tmp_path / "link", 5), (tmp_path, 5)):
        with pytest.raises(OSError):  # noqa: PT011 - each has a number of its own
            read_plain_file(str(name), size_max, follow_links=False)
