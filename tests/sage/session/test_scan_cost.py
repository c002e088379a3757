"""What a command costs in a large folder: the files before and after it are compared by their status alone."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lyra.sage.session.files.contents import KeptContents
from lyra.sage.session.files.observed import ObservedFiles, ScanBounds
from tests.limits import within

_FILES = 6_000
_RATIO_MAX = 1.45  # of a bare walk that asks for each status: some 90 ms for 30 000 files on a usual machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    for number in range(_FILES):
        path = folder / f"part{number % 60}" / f"file{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"x = {number}\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return folder


def walk(folder: Path) -> int:
    waiting, count = [str(folder)], 0
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return count


def test_files_that_have_not_changed_are_not_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look reads nothing; of one file that has changed it reads that one."""
    contents = KeptContents(tmp_path / "kept")
    files = ObservedFiles([str(folder)], contents, bounds=ScanBounds(), without=())
    read: list[int] = []
    keep = KeptContents.keep

    def note(self: KeptContents, source: Any, **more: Any) -> Any:
        read.append(source)
        return keep(self, source, **more)

    monkeypatch.setattr(KeptContents, "keep", note)
    monkeypatch.setattr("lyra.sage.session.files.observed._FRESH_S", 0.0)
    assert len(files.scan("user")) > _FILES
    assert len(read) == _FILES
    read.clear()
    assert files.scan("user") == []
    assert read == []
    (folder / "part1" / "file1.py").write_text("changed\n")
    assert len(files.scan("agent")) == 1
    assert len(read) == 1
    contents.close()


def test_a_folder_that_comes_back_is_seen(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files have the same status as before it went; a look at one of them between changes nothing about that."""
    monkeypatch.setattr("lyra.sage.session.files.observed._FRESH_S", 0.0)
    monkeypatch.setattr("lyra.sandbox.paths._SETTLED_S", 0.0)
    with closing(KeptContents(tmp_path / "kept")) as contents:
        files = ObservedFiles([str(folder)], contents, bounds=ScanBounds(), without=())
        for _ in range(3):
            files.scan("user")
        for looks_between in (False, True):
            (folder / "part7").rename(tmp_path / "aside")
            if looks_between:
                assert files.look(str(folder / "part7/file7.py"), "user") != []
            assert len(files.scan("user")) in (99, 101)
            (tmp_path / "aside").rename(folder / "part7")
            assert len(files.scan("user")) == 101
            assert files.state_of(str(folder / "part7/file7.py")).kind == "file"
            files.scan("user")


def test_a_folder_beyond_the_bound_is_not_asked_about(folder: Path, tmp_path: Path) -> None:
    """Folders for which there is no room are left out as a whole; their files are not looked at one by one."""
    contents = KeptContents(tmp_path / "kept")
    files = ObservedFiles([str(folder)], contents, bounds=ScanBounds(files_max=150), without=())
    files.scan("user")
    assert files.report.is_bounded
    assert 60 < files.report.files <= 161
    contents.close()


@pytest.mark.timed
def test_a_look_costs_little_more_than_a_walk(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU of a look at a folder where nothing has changed, against that of a bare walk in the same run."""
    monkeypatch.setattr("lyra.sage.session.files.observed._FRESH_S", 0.0)
    monkeypatch.setattr("lyra.sandbox.paths._SETTLED_S", 0.0)
    contents = KeptContents(tmp_path / "kept")
    files = ObservedFiles([str(folder)], contents, bounds=ScanBounds(), without=())
    for _ in range(3):
        files.scan("user")
    ratios = []
    for _ in range(9):
        began = time.process_time()
        assert walk(folder) == _FILES + 60
        walked = time.process_time() - began
        assert files.scan("user") == []
        ratios.append((time.process_time() - began - walked) / walked)
    within(min(ratios), _RATIO_MAX, ratios)
    contents.close()
