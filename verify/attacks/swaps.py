"""Races for a path: a thread swaps folders for symlinks that lead out while paths are opened.

A second process exchanges `inside/door` and a symlink to the outside folder as quickly as it can, in several ways
and depths, while this one opens paths through it with `lyra.sandbox.Beneath`, by the kernel's way and by the walk in
turn. An open that gives the outside file, by content or by where its descriptor points, is a failure. So that a race
that never happens is not taken for one that is won, the swaps are counted and both outcomes must have been seen; on a
busy machine, where the other process may not have had its turn yet, more paths are opened for that.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lyra.core.ids import make_random
from lyra.errors import CapabilityDenied
from lyra.sandbox.paths import Beneath, true_path

__all__ = ["Report", "run"]

_PATHS: Final = (
    "door/file",
    "deep/door/file",
    "deep/../door/file",
    "door/../door/file",
    "link",
    "door/./inner/../file",
    "deep/door/inner/file",
)
_SECRET: Final = b"outside"
_EXCHANGE: Final = 2
_RACE_S_MAX: Final = 20.0  # how long a race may take to begin
_RENAMEAT2: Final = {"x86_64": 316, "aarch64": 276}


@dataclass(slots=True)
class Report:
    opened: int = 0
    refused: int = 0
    missing: int = 0
    swaps: int = 0
    failures: list[str] = field(default_factory=list)


def run(count: int, seed: int) -> Report:
    """Open `count` paths during a storm of swaps."""
    report = Report()
    root = Path(tempfile.mkdtemp(prefix="lyra-swaps-"))
    try:
        _build(root)
        counter = mmap.mmap(-1, 8)
        swapper = os.fork()
        if swapper == 0:
            _swap_for_ever(root, counter)
        try:
            give_up_at = time.monotonic() + _RACE_S_MAX
            _open_many(root, count, seed, report)
            while _is_undecided(report, counter) and time.monotonic() < give_up_at:
                seed += 1
                _open_many(root, count, seed, report)
        finally:
            os.kill(swapper, signal.SIGKILL)
            os.waitpid(swapper, 0)
        report.swaps = int.from_bytes(counter[:8], "little")
        counter.close()
        if not (report.opened and report.refused and report.swaps):
            report.failures.append(
                f"there was no race: {report.opened} opened, {report.refused} refused, {report.swaps} swaps"
            )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return report


def _is_undecided(report: Report, counter: mmap.mmap) -> bool:
    """Return whether no open was lost, and an outcome or the first swap is still to come."""
    return not report.failures and not (report.opened and report.refused and any(counter[:8]))


def _build(root: Path) -> None:
    for place in ("inside/door", "inside/deep/door", "outside"):
        (root / place / "inner").mkdir(parents=True)
        for name in ("file", "inner/file"):
            (root / place / name).write_bytes(_SECRET if place == "outside" else b"inside")
    (root / "inside/link").symlink_to("door/file")
    for place in ("inside/swap", "inside/deep/swap"):
        (root / place).symlink_to(root / "outside")


def _swap_for_ever(root: Path, counter: mmap.mmap) -> None:
    """The other side: exchange folder and symlink in one step, again and again."""
    libc = ctypes.CDLL(None)
    number = _RENAMEAT2.get(os.uname().machine, _RENAMEAT2["x86_64"])
    pairs = [
        (os.fsencode(root / f"{folder}/door"), os.fsencode(root / f"{folder}/swap"))
        for folder in ("inside", "inside/deep")
    ]
    done = 0
    while True:
        for door, swap in pairs:
            libc.syscall(number, -100, door, -100, swap, _EXCHANGE)
            done += 1
        counter[:8] = done.to_bytes(8, "little")


def _open_many(root: Path, count: int, seed: int, report: Report) -> None:
    random = make_random(seed)
    inside = os.path.realpath(root / "inside")
    with Beneath(inside) as kernel, Beneath(inside, by_kernel=False) as walk:
        for turn in range(count):
            folder = kernel if turn % 2 else walk
            path = random.choice(_PATHS)
            try:
                fd = folder.open(path, links=bool(random.getrandbits(1)))
            except CapabilityDenied:
                report.refused += 1
                continue
            except OSError:
                report.missing += 1
                continue
            try:
                content, where = os.read(fd, 100), true_path(fd)
            finally:
                os.close(fd)
            report.opened += 1
            if content == _SECRET or not where.startswith(inside + "/"):
                report.failures.append(f"{path} gave {where} ({'walk' if folder is walk else 'kernel'})")
