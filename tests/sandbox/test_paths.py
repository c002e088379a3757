"""A path stays in its folder: by text, by symlink, by race; the kernel's way and the walk agree."""

from __future__ import annotations

import os

import pytest

from lyra.errors import CapabilityDenied, ConfigError
from lyra.sandbox import Beneath
from lyra.sandbox.paths import true_path
from verify.attacks import swaps


@pytest.fixture(params=["kernel", "walk"])
def folder(request, tmp_path):
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    links = {
        "to_file": "a/file",
        "to_folder": "a",
        "a/up": "..",
        "a/up_and_down": "../a/file",
        "out_absolute": tmp_path / "outside",
        "out_relative": "../outside",
        "out_file": "../outside/secret",
        "a/out_deep": "../../outside",
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
        "dangling": "nowhere",
        "absolute_inside": root / "a",
        "proc": "/proc/self/root",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    with Beneath(str(root), by_kernel=request.param == "kernel") as beneath:
        yield beneath


def _read(folder: Beneath, path: str, **options) -> str:
    fd = folder.open(path, **options)
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "path",
    ["a/file", "./a//file", "a/b/../file", "to_file", "to_folder/file", "a/up/a/file", "a/up_and_down", "a/./file"],
)
def test_what_stays_inside_opens(folder, path):
    """Also by `..` and by symlinks that do not leave."""
    assert _read(folder, path) == "inside"
    assert _read(folder, f"{folder.root}/a/file") == "inside"


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside/secret",
        "a/../../outside/secret",
        "a/b/../../../outside/secret",
        "out_absolute/secret",
        "out_relative/secret",
        "out_file",
        "a/out_deep/secret",
        "a/up/../outside/secret",
        "to_folder/../../outside/secret",
        "absolute_inside/file",
        "proc/etc/passwd",
        "loop",
        "ping",
        "/etc/passwd",
        "/",
        "a/file\0x",
    ],
)
def test_what_leaves_is_refused(folder, path):
    """An error that names the path, never another file."""
    with pytest.raises(CapabilityDenied, match="leaves"):
        folder.open(path)


def test_a_neighbour_with_the_same_beginning_is_outside(folder, tmp_path):
    """`/root2` does not lie in `/root`."""
    (tmp_path / "root2").mkdir()
    with pytest.raises(CapabilityDenied):
        folder.open(f"{folder.root}2/x")


def test_missing_and_wrong_kinds_are_plain_errors(folder):
    """As `open` itself would say it."""
    for path, kind in (
        ("a/none", FileNotFoundError),
        ("dangling", FileNotFoundError),
        ("a/file/x", NotADirectoryError),
    ):
        with pytest.raises(kind):
            folder.open(path)


def test_without_links(folder):
    """Not even those that stay inside."""
    assert _read(folder, "a/file", links=False) == "inside"
    for path in ("to_file", "to_folder/file"):
        with pytest.raises((OSError, CapabilityDenied)):
            folder.open(path, links=False)


def test_making_a_file(folder, tmp_path):
    """Created where the path leads inside, refused where it leads out, also by a dangling symlink."""
    os.close(folder.open("to_folder/new", os.O_CREAT | os.O_WRONLY, 0o600))
    assert (tmp_path / "root/a/new").stat().st_mode & 0o777 == 0o600
    (tmp_path / "root/out_new").symlink_to("../outside/new")
    for path in ("../outside/new", "out_new", "out_relative/new"):
        with pytest.raises(CapabilityDenied):
            folder.open(path, os.O_CREAT | os.O_WRONLY)
    assert os.listdir(tmp_path / "outside") == ["secret"]


def test_the_true_path(folder):
    """The descriptor tells its own name."""
    fd = folder.open("a/up_and_down")
    assert true_path(fd) == f"{folder.root}/a/file"
    os.close(fd)
    fd = folder.open(".", os.O_PATH)
    assert true_path(fd) == folder.root
    os.close(fd)


def test_a_folder_that_is_none(tmp_path):
    """Said at once."""
    with pytest.raises(ConfigError, match="cannot be opened"):
        Beneath(str(tmp_path / "none"))


def test_symlink_races():
    """A thousand opens while folders and symlinks are swapped: none gives the outside file."""
    report = swaps.run(1_000, 1)
    assert report.failures == []
    assert report.swaps > 100


def test_a_race_waits_for_its_other_side():
    """Few opens on a busy machine may be over before the first swap: more are made until both outcomes were seen."""
    report = swaps.run(1, 1)
    assert report.failures == []
    assert min(report.opened, report.refused, report.swaps) > 0


def test_a_naive_open_loses_the_race(tmp_path, monkeypatch):
    """So the race is real, and a loss is seen."""
    monkeypatch.setattr(Beneath, "open", lambda self, path, **_: os.open(f"{self.root}/{path}", os.O_RDONLY))
    report = swaps.run(2_000, 1)
    assert any("outside" in failure for failure in report.failures)


def test_the_walk_does_without_the_call_of_the_kernel(tmp_path, monkeypatch):
    """On kernels that have none, and wherever it is asked for."""
    (tmp_path / "file").write_text("inside")

    def missing(*_: object, **__: object) -> int:
        raise AssertionError("openat2 was called")

    monkeypatch.setattr(Beneath, "_ask_kernel", missing)
    with Beneath(str(tmp_path), by_kernel=False) as folder:
        assert _read(folder, "file") == "inside"
