"""`open_store` turns what a user writes into a store, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.errors import ConfigError
from lyra.store import open_store
from lyra.store.memory import MemoryStore
from lyra.store.postgres import PostgresStore
from lyra.store.sqlite import SqliteStore


def test_each_way_of_writing_a_target(tmp_path: Path, postgres_url: str) -> None:
    """`memory`, a path, `sqlite:///path` and `postgresql://…` each give their store."""
    assert isinstance(open_store("memory"), MemoryStore)
    for target in (str(tmp_path / "a.db"), f"sqlite://{tmp_path / 'b.db'}"):
        store = open_store(target)
        assert isinstance(store, SqliteStore)
        store.close()
    assert {file.name for file in tmp_path.iterdir()} == {"a.db", "b.db"}
    server = open_store(postgres_url)
    assert isinstance(server, PostgresStore)
    server.close()


def test_durability_reaches_the_store(tmp_path: Path) -> None:
    """`power` gives a store whose appends wait for the disk."""
    store = open_store(str(tmp_path / "a.db"), durability="power")
    assert store.inline is False
    store.close()


@pytest.mark.parametrize(("target", "durability"), [("mysql://host/db", "process"), ("memory", "for ever")])
def test_what_no_store_understands(target: str, durability: str) -> None:
    """An unknown scheme or durability is a ConfigError with a hint."""
    with pytest.raises(ConfigError) as caught:
        open_store(target, durability=durability)
    assert caught.value.hint
