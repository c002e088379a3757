"""Snapshots after kill -9 at any point: every turn can still be undone to exactly the tree it began with."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import StoreError
from lyra.sage.session.snapshots import Snapshots
from tests.cases import cases, first
from tests.sage.session.trees import change_at_random, tree

CALLS = ("write", "pwrite", "rename", "mkdir", "unlink", "rmdir", "symlink", "open", "fchmod", "chmod")


def encoded(paths: dict[str, Any]) -> str:
    return repr(sorted(paths.items()))


def live(work: Path, session: Path, log: Path, seed: int) -> None:
    """Turns of random changes and undos, for ever; each turn's tree is logged before it begins."""
    rng = random.Random(seed)
    last = 0
    room = 300_000 if seed % 2 else 1_000_000_000  # with little room the oldest turns are dropped now and then
    with Snapshots(session, [str(work)], kept_bytes_max=room) as snapshots, open(log, "a") as file:
        for _ in range(200):
            last += 1
            print(json.dumps([last, encoded(tree(work))]), file=file, flush=True)
            snapshots.begin_turn(last)
            for _ in range(rng.randrange(3)):
                token = snapshots.before_command()
                for _ in range(rng.randrange(5)):
                    change_at_random(rng, work)
                snapshots.after(token)
            if rng.random() < 0.5:
                turn = rng.randrange(max(1, last - 3), last + 1)
                print(json.dumps([turn - 1, None]), file=file, flush=True)  # later turns no longer count
                with suppress(StoreError):
                    snapshots.restore(turn)
                    last = turn - 1


def kill_at(count: int) -> None:
    """Kill this process at its call number `count` of those that change files; a write is torn."""
    calls = 0

    def wrapped(real):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls >= count:
                if real in (os_write, os_pwrite) and len(arguments[1]) > 1:
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2], *arguments[2:])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    os_write, os_pwrite = os.write, os.pwrite
    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))


def check(work: Path, session: Path, log: Path) -> None:
    """Undo turn by turn."""
    trees: dict[int, str] = {}
    last = 0
    for line in log.read_text().splitlines():
        last, text = json.loads(line)
        if text is not None:
            trees[last] = text
    with Snapshots(session, [str(work)]) as snapshots:
        begun = {start.turn for start in snapshots._history._turns}
        for turn in range(last, 0, -1):
            if turn < snapshots._history.first_turn_kept:
                break
            if turn in begun:
                assert snapshots.restore(turn, force=True).problems == ()  # what the cut-off call did is in doubt
            assert encoded(tree(work)) == trees[turn], turn
        snapshots.begin_turn(1)
        assert not list(work.rglob(".lyra-restoring-*"))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of the fork, where tests run in threads
@pytest.mark.parametrize("seed", first(range(cases(400)), 8))
def test_killed_at_any_call(tmp_path, seed):
    """In the middle of a copy, of a line, of an undo; twice in a row."""
    work, session, log = tmp_path / "work", tmp_path / "session", tmp_path / "log"
    work.mkdir()
    log.touch()
    rng = random.Random(seed)
    for _ in range(8):
        change_at_random(rng, work)
    child = os.fork()
    if child == 0:
        try:
            kill_at(rng.randrange(1, 1_500))
            live(work, session, log, seed)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    check(work, session, log)


LIVE = """
import sys
from pathlib import Path
from tests.sage.session.test_snapshots_killed import live
live(*map(Path, sys.argv[1:4]), int(sys.argv[4]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", first(range(3), 1))
def test_killed_from_outside(tmp_path, seed):
    """A process of its own, killed at some moment of its work."""
    work, session, log = tmp_path / "work", tmp_path / "session", tmp_path / "log"
    work.mkdir()
    log.touch()
    process = subprocess.Popen([sys.executable, "-c", LIVE, str(work), str(session), str(log), str(seed)])
    while process.poll() is None and len(log.read_bytes().splitlines()) < 5 * (seed + 1):
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    check(work, session, log)
