"""Random sequences of changes, undone to any turn: the tree is exactly what it was, bytes, modes and links."""

from __future__ import annotations

import os
import random

import pytest

from lyra.errors import Conflict
from lyra.sage.session.files import observed
from lyra.sage.session.snapshots import Snapshots
from tests.cases import cases, first
from tests.sage.session.trees import change_at_random, random_path, tree


@pytest.mark.parametrize("seed", first(range(cases(200)), 8))
def test_undo_to_each_turn_gives_that_tree(tmp_path, seed, monkeypatch):
    """Turns of commands; then undo to any turn, redo, more turns, undo again: always the tree of that moment. Half of
    the runs open the snapshots anew before each turn, and take no file to be fresh."""
    rng = random.Random(seed)
    work, session = tmp_path / "work", tmp_path / "session"
    work.mkdir()
    for _ in range(rng.randrange(15)):
        change_at_random(rng, work)
    snapshots = Snapshots(session, [str(work)])
    trees = {}
    last = 0
    for _ in range(rng.randrange(2, 6)):
        for _ in range(rng.randrange(1, 4)):
            last += 1
            if rng.random() < 0.3:
                snapshots.close()
                snapshots = Snapshots(session, [str(work)])
            trees[last] = tree(work)
            snapshots.begin_turn(last)
            for _ in range(rng.randrange(3)):
                token = snapshots.before_command()
                for _ in range(rng.randrange(6)):
                    change_at_random(rng, work)
                snapshots.after(token)
            snapshots.end_turn()
        now = tree(work)
        turn = rng.randrange(1, last + 1)
        result = snapshots.restore(turn)
        assert result.problems == ()
        assert tree(work) == trees[turn]
        assert snapshots.restore(turn).paths == ()
        if result.redo and rng.random() < 0.5:
            again = snapshots.restore_checkpoint(result.redo)
            assert again.problems == ()
            assert tree(work) == now
        else:
            last = turn - 1
    snapshots.close()


@pytest.mark.parametrize("seed", first(range(cases(100)), 8))
def test_another_hand_is_never_overwritten(tmp_path, seed):
    """Between the commands another hand changes files at random. Undo either gives what the files were before the
    agent touched them, and leaves all files that the agent did not touch; or it refuses and changes nothing."""
    rng = random.Random(seed)
    work, session = tmp_path / "work", tmp_path / "session"
    work.mkdir()
    for _ in range(10):
        change_at_random(rng, work)
    refused = 0
    with Snapshots(session, [str(work)]) as snapshots:
        for turn in range(1, 6):
            snapshots.begin_turn(turn)
            for _ in range(rng.randrange(2)):
                change_at_random(rng, work)  # by the user
            before = tree(work)
            token = snapshots.before_command()
            for _ in range(rng.randrange(4)):
                change_at_random(rng, work)
            snapshots.after(token)
            left = tree(work)
            for _ in range(rng.randrange(2)):
                change_at_random(rng, work)  # by the user
            now = tree(work)
            agents = {path for path in before.keys() | left.keys() if before.get(path) != left.get(path)}
            users = {path for path in left.keys() | now.keys() if left.get(path) != now.get(path)}
            try:
                result = snapshots.restore(turn)
            except Conflict:
                refused += 1
                assert tree(work) == now
                assert agents & users
                snapshots.restore(turn, force=True)
                continue
            after = tree(work)
            for path in after.keys() | now.keys():
                if path in agents and path not in users and not result.problems:
                    assert after.get(path) == before.get(path)
                elif path not in agents:
                    assert after.get(path) == now.get(path)


@pytest.mark.parametrize("seed", first(range(cases(60)), 8))
def test_tools_that_name_their_file(tmp_path, seed):
    """A tool that names the file needs no scan of the workspace: also its new folders go away again."""
    rng = random.Random(seed)
    work = tmp_path / "work"
    work.mkdir()
    for _ in range(10):
        change_at_random(rng, work)
    trees = {}
    with Snapshots(tmp_path / "session", [str(work)]) as snapshots:
        for turn in range(1, 8):
            trees[turn] = tree(work)
            snapshots.begin_turn(turn)
            path = random_path(rng, work)
            if path.is_dir() or path.is_symlink() or path.resolve() != path or any(p.is_file() for p in path.parents):
                continue
            if path.exists() and not os.access(path, os.W_OK):
                continue  # root may write it, an ordinary user may not
            token = snapshots.before(str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.randbytes(10))
            changes = snapshots.after(token)
            assert [change.path for change in changes] == [str(path)]
            assert changes[0].after == path.read_bytes()
        for turn in range(7, 0, -1):
            snapshots.restore(turn)
            assert tree(work) == trees[turn]


def test_the_random_changes_are_seen_without_reading_all(tmp_path, monkeypatch):
    """A file whose status did not change is not read again."""
    monkeypatch.setattr(observed, "_FRESH_S", -1.0)
    (tmp_path / "work").mkdir()
    for number in range(20):
        (tmp_path / "work" / str(number)).write_text(str(number))
    with Snapshots(tmp_path / "session", [str(tmp_path / "work")]) as snapshots:
        snapshots.scan()
        reads = []
        keep = type(snapshots._contents).keep
        monkeypatch.setattr(
            type(snapshots._contents), "keep", lambda self, fd, **more: (reads.append(fd), keep(self, fd, **more))[1]
        )
        snapshots.scan()
        assert reads == []
        (tmp_path / "work" / "7").write_text("seven")
        snapshots.scan()
        assert len(reads) == 1
