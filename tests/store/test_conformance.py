"""All three stores keep all promises of the suite that users get for theirs, also when they sign what they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.store import Store
from lyra.store.memory import MemoryStore
from lyra.store.postgres import PostgresStore
from lyra.store.signature import Signer
from lyra.store.signing import SigningStore
from lyra.store.space import Space
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


KEY = Signer(bytes(32))


def signing(store: SigningStore) -> SigningStore:
    """The store, from now on signed with a key of the tests."""
    store.sign_with(KEY)
    if store.holds_nothing() and not store.signed_by():
        store.begin_signing(0)
    return store


class TestSignedSqlite(TestSqlite):
    def make_store(self) -> Store:
        return signing(SqliteStore(self.path))  # type: ignore[return-value]

    def another(self, store: Store) -> Store:
        return signing(SqliteStore(self.path))  # type: ignore[return-value]


class TestSignedSpace(TestSqlite):
    def make_store(self) -> Store:
        return signing(Space(self.path, "run"))  # type: ignore[return-value]

    def another(self, store: Store) -> Store:
        return signing(Space(self.path, "run"))  # type: ignore[return-value]


class TestSignedPostgres(TestPostgres):
    def make_store(self) -> Store:
        return signing(PostgresStore(self.url))  # type: ignore[return-value]

    def another(self, store: Store) -> Store:
        return signing(PostgresStore(self.url))  # type: ignore[return-value]
