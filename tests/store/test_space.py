"""Spaces: several journals in one file, each with an owner of its own."""

from __future__ import annotations

import pytest

from lyra.errors import ConfigError, Conflict, StoreError
from lyra.store.space import Space, spaces
from lyra.store.sqlite import SqliteStore


def rows(first: int, count: int) -> list[tuple[int, float, str, str, bytes]]:
    return [(first + number, 1.0, "p", "run.printed", b"\xc0") for number in range(count)]


def test_spaces_do_not_see_each_other(tmp_path):
    """Journals, leases and snapshots are apart; blobs are shared, since they are named by their content."""
    path = tmp_path / "x.db"
    space, other = Space(path, "one"), Space(path, "two")
    first, second = space.acquire("a", now=0.0, ttl_s=10), other.acquire("b", now=0.0, ttl_s=10)
    space.append(rows(1, 3), first.epoch)
    other.append(rows(1, 1), second.epoch)
    space.append(rows(4, 1), first.epoch)
    space.save_snapshots(2, {"p": b"x"}, first.epoch)
    assert (space.last_seq(), other.last_seq()) == (4, 1)
    assert other.load_snapshots().states == {}
    assert other.get_blob(space.put_blob(b"data")) == b"data"
    main = SqliteStore(path)
    assert (main.last_seq(), main.holder()) == (0, None)
    assert spaces(main) == ["one", "two"]
    assert [store.check() for store in (main, space, other)] == [[], [], []]
    for store in (space, other, main):
        store.close()
    again = Space(path, "one", make=False)
    assert [row.seq for row in again.read()] == [1, 2, 3, 4]
    again.close()


def test_a_space_has_one_owner_at_a_time(tmp_path):
    space, same = Space(tmp_path / "x.db", "one"), Space(tmp_path / "x.db", "one")
    old = space.acquire("a", now=0.0, ttl_s=10)
    with pytest.raises(Conflict):
        same.acquire("b", now=1.0, ttl_s=10)
    new = same.acquire("b", now=11.0, ttl_s=10)
    same.append(rows(1, 1), new.epoch)
    with pytest.raises(Conflict):
        space.append(rows(2, 1), old.epoch)
    space.close()
    same.close()


def test_notes_are_kept_until_they_are_dropped(tmp_path):
    space, other = Space(tmp_path / "x.db", "one"), Space(tmp_path / "x.db", "one")
    other.leave_note(b"a")
    other.leave_note(b"b")
    (number, data), (_, second) = space.notes()
    assert (data, second) == (b"a", b"b")
    space.drop_note(number)
    assert [data for _, data in other.notes()] == [b"b"]
    assert Space(tmp_path / "x.db", "two").notes() == []


@pytest.mark.parametrize("name", ["", "a/b", 'x"; drop table journal', "-x", "a b", "é", "x" * 65])
def test_names_that_are_none(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot be the name of a run"):
        Space(tmp_path / "x.db", name)


def test_a_space_that_is_not_there_is_not_made_by_looking(tmp_path):
    Space(tmp_path / "x.db", "one").close()
    with pytest.raises(StoreError, match="has no run 'two'"):
        Space(tmp_path / "x.db", "two", make=False)
    with pytest.raises(ConfigError, match="only in case"):
        Space(tmp_path / "x.db", "ONE")


@pytest.mark.parametrize("name", ["sqlite_bench", "SQLite_x", "sqlite_"])
def test_a_name_that_sqlite_keeps_for_itself(tmp_path, name):
    space = Space(tmp_path / "s.db", name)
    lease = space.acquire("me", now=1.0, ttl_s=9.0)
    space.append(rows(1, 2), lease.epoch)
    space.close()
    space = Space(tmp_path / "s.db", name, make=False)
    assert space.last_seq() == 2
    space.close()
    file = SqliteStore(tmp_path / "s.db")
    assert spaces(file) == [name]
    file.close()
