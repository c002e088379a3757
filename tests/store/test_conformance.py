"""All three stores keep all promises of the suite that users get for theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.store import Store
from lyra.store.memory import MemoryStore
from lyra.store.postgres import PostgresStore
from lyra.store.sqlite import SqliteStore
from lyra.testing.conformance import StoreConformance


class TestMemory(StoreConformance):
    def make_store(self) -> Store:
        return MemoryStore()

    def another(self, store: Store) -> Store:
        return store


class TestSqlite(StoreConformance):
    durability = "process"

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "lyra.db"

    def make_store(self) -> Store:
        return SqliteStore(self.path, durability=self.durability)

    def another(self, store: Store) -> Store:
        return SqliteStore(self.path, durability=self.durability)


class TestSqlitePower(TestSqlite):
    durability = "power"


class TestPostgres(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self, postgres_url: str) -> None:
        self.url = postgres_url

    def make_store(self) -> Store:
        return PostgresStore(self.url)

    def another(self, store: Store) -> Store:
        return PostgresStore(self.url)
