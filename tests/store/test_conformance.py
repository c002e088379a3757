"""All three stores keep all promises of the suite that users get for theirs, also when they sign what they write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    if store.holds_nothing() and not store.get_signing_key():
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


# ------------------------------------------------------------------ the suite itself
class Noting(MemoryStore):
    def __init__(self, closed: list[Store]) -> None:
        super().__init__()
        self.closed_stores = closed

    def close(self) -> None:
        self.closed_stores.append(self)
        super().close()


class Places(StoreConformance):
    """A suite for stores in memory that notes what it is asked for."""

    def __init__(self) -> None:
        self.opened_beside: list[Store] = []
        self.closed: list[Store] = []

    def make_store(self) -> Store:
        return Noting(self.closed)

    def another(self, store: Store) -> Store:
        self.opened_beside.append(store)
        return store


@pytest.mark.parametrize(
    ("ask", "method"),
    [(lambda suite: suite.fresh(), "make_store"), (lambda suite: suite.reopen(MemoryStore()), "another")],
)
def test_a_suite_says_which_method_is_missing(ask: Any, method: str) -> None:
    """One that gives no store of its own fails by the name of the method, not somewhere inside a test."""
    suite = StoreConformance()
    suite.setup_method()
    with pytest.raises(NotImplementedError, match=method):
        ask(suite)


def test_a_suite_opens_the_store_of_its_test_a_second_time() -> None:
    """`another` is given the store that is open, to find its place by."""
    suite = Places()
    suite.setup_method()
    first, second = suite.fresh(), suite.fresh()
    assert suite.another(first) is first
    suite.reopen(second)
    assert suite.opened_beside == [first, second]


def test_a_suite_closes_what_its_test_opened() -> None:
    """After the test, every store."""
    suite = Places()
    suite.setup_method()
    stores = [suite.fresh(), suite.fresh()]
    suite.teardown_method()
    assert suite.closed == stores
