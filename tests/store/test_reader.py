"""A store that is opened to be read: nothing is written, made or left behind, and a kernel may open it meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel
from lyra.errors import ConfigError, Conflict, StoreError
from lyra.store.migrations import MIGRATIONS, POSTGRES_TYPES, SIGNED_SINCE
from lyra.store.postgres import PostgresStore
from lyra.store.space import SqliteReader, open_to_read
from tests.kept_stores.test_kept_stores import HERE as KEPT_STORES
from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures


async def idle(ctx: Any) -> None:
    await ctx.receive()


def fill(path: Path, pid: str) -> None:
    async def main() -> None:
        async with Kernel(str(path), programs=[idle]) as kernel:
            await kernel.spawn(idle, pid=pid)

    asyncio.run(main())


def test_nothing_is_written_and_nothing_is_left(tmp_path: Path) -> None:
    """Also of an earlier version, whose tables are not brought up to date."""
    kept = shutil.copy(KEPT_STORES / "v0.1.0" / "agents.db", tmp_path)
    fill(tmp_path / "new.db", "one")
    for path in (Path(kept), tmp_path / "new.db"):
        before = hashlib.sha256(path.read_bytes()).hexdigest()
        store = open_to_read(str(path))
        assert len(list(store.read())) > 0
        with pytest.raises((StoreError, Conflict)):
            store.acquire("reader", now=0.0, ttl_s=1.0)
        store.close()
        assert hashlib.sha256(path.read_bytes()).hexdigest() == before
        assert [file.name for file in tmp_path.glob(f"{path.name}*")] == [path.name]


def test_a_store_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        open_to_read(str(tmp_path / "none.db"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError):
        open_to_read("memory")


def test_rows_of_a_kernel_that_opens_the_store_meanwhile_are_read(tmp_path: Path) -> None:
    """The reader opened the store while no kernel had it."""
    path = tmp_path / "run.db"
    fill(path, "one")
    store = SqliteReader(path)
    count = len(list(store.read()))

    async def main() -> None:
        async with Kernel(str(path), programs=[idle]) as kernel:
            await kernel.spawn(idle, pid="two")
            assert len(list(store.read())) == count + 1

    asyncio.run(main())
    store.close()


def test_rows_of_a_kernel_that_opened_and_closed_the_store_meanwhile_are_read(tmp_path: Path) -> None:
    """No log is left then that would tell of it."""
    path = tmp_path / "run.db"
    fill(path, "one")
    store = SqliteReader(path)
    count = len(list(store.read()))
    fill(path, "two")
    assert "two" in {record.pid for record in store.read()}
    assert len(list(store.read())) > count
    assert [file.name for file in tmp_path.iterdir()] == ["run.db"]
    store.close()


def test_a_schema_that_does_not_exist_is_not_made(postgres_url: str) -> None:  # noqa: F811
    """Looking at a store of PostgreSQL under a wrong name leaves nothing there."""
    for _ in range(2):
        with pytest.raises(StoreError, match="there is no store in"):
            open_to_read(postgres_url)


def test_a_store_of_postgresql_is_read_and_not_written(postgres_url: str) -> None:  # noqa: F811
    """By the server's own refusal, whatever is tried."""

    async def main() -> None:
        async with Kernel(postgres_url, programs=[idle]) as kernel:
            await kernel.spawn(idle, pid="one")

    asyncio.run(main())
    store = open_to_read(postgres_url)
    try:
        assert "one" in {record.pid for record in store.read()}
        for write in (
            lambda: store.acquire("reader", now=None, ttl_s=1.0),
            lambda: store.put_blob(b"x"),
            lambda: store.compact(before=1e12, epoch=1),
        ):
            with pytest.raises(StoreError):
                write()
    finally:
        store.close()


def test_an_older_store_of_postgresql_is_not_brought_up_to_date(
    postgres_url: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is read with the tables that it has."""

    def oldest(store: PostgresStore) -> None:
        with store._transaction("BEGIN"):
            store._run(f"CREATE SCHEMA {store.schema}")
            for migration in MIGRATIONS[: SIGNED_SINCE - 1]:
                store._apply(migration, POSTGRES_TYPES)

    monkeypatch.setattr(PostgresStore, "_migrate", oldest)
    monkeypatch.setattr(PostgresStore, "_check_tail", lambda _: None)  # which asks for the signatures
    PostgresStore(postgres_url).close()
    monkeypatch.undo()
    store = open_to_read(postgres_url)
    assert list(store.read()) == []
    assert isinstance(store, PostgresStore)
    assert store._version() == SIGNED_SINCE - 1
    store.close()
