"""The tables of a database Store, as a numbered list of steps.

A step, once released, is never edited: a new shape is a new step at the end. Each step is applied in a transaction of
its own and leaves its row in `migrations`, which every later version of Lyra keeps as it is, so that an old Lyra can
tell "written by a newer one" from damage. Statements are written once, with the column types of each database filled
in. `sqlite` and `postgres` apply the list; nothing else creates or alters a table.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lyra.store.rows import fields_crc

SQLITE_TYPES: Final = {"int": "INTEGER", "real": "REAL", "bytes": "BLOB"}
POSTGRES_TYPES: Final = {"int": "BIGINT", "real": "DOUBLE PRECISION", "bytes": "BYTEA"}


def identity_crc(name: str, since: int) -> int:
    return fields_crc("identity", name, since)


def lease_crc(owner: str, epoch: int, expires_at: float) -> int:
    return fields_crc("lease", owner, epoch, float(expires_at) + 0.0)


def meta_crc(first_seq: int, snapshot_seq: int, states: int, states_total: int) -> int:
    return fields_crc("meta", first_seq, snapshot_seq, states, states_total)


def migration_crc(number: int, name: str) -> int:
    return fields_crc("migrations", number, name)


def signature_crc(key_id: str, seq: int, link: bytes, code: bytes) -> int:
    return fields_crc("signatures", key_id, seq, bytes(link), bytes(code))


class TableMigration(NamedTuple):
    """One step: statements with `{int}`, `{real}`, `{bytes}` for column types, then first rows with `?` for values."""

    number: int
    name: str
    tables: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str | int | float | bytes, ...]], ...] = ()
    names_store: bool = False  # whether its first row is the store's id, which is another one for each store

    def statements(self, types: dict[str, str]) -> list[str]:
        return [table.format(**types) for table in self.tables]


MIGRATIONS: Final = (
    TableMigration(
        1,
        "journal, snapshots, lease",
        (
            "CREATE TABLE migrations (number {int} PRIMARY KEY, name TEXT NOT NULL, crc {int} NOT NULL)",
            # One row for each batch: see `rows`.
            (
                "CREATE TABLE journal (seq {int} PRIMARY KEY, rows {int} NOT NULL, data {bytes} NOT NULL,"
                " crc {int} NOT NULL)"
            ),
            "CREATE TABLE snapshots (pid TEXT PRIMARY KEY, data {bytes} NOT NULL, crc {int} NOT NULL)",
            # One row each, there from the start: a row that is missing later is damage, not a new store.
            (
                "CREATE TABLE lease (id {int} PRIMARY KEY, owner TEXT NOT NULL, epoch {int} NOT NULL,"
                " expires_at {real} NOT NULL, crc {int} NOT NULL)"
            ),
            (
                "CREATE TABLE meta (id {int} PRIMARY KEY, first_seq {int} NOT NULL, snapshot_seq {int} NOT NULL,"
                " states {int} NOT NULL, states_total {int} NOT NULL, crc {int} NOT NULL)"
            ),
        ),
        (
            ("INSERT INTO lease VALUES (1, ?, ?, ?, ?)", ("", 0, 0.0, lease_crc("", 0, 0.0))),
            ("INSERT INTO meta VALUES (1, ?, ?, ?, ?, ?)", (1, 0, 0, 0, meta_crc(1, 0, 0, 0))),
        ),
    ),
    TableMigration(
        2,
        "blobs",  # large values are stored once, beside the journal, so that reading it stays quick
        ("CREATE TABLE blobs (digest TEXT PRIMARY KEY, data {bytes} NOT NULL)",),
    ),
    TableMigration(
        3,
        "identity",  # `since` is the last row from before the store had a name: see `protocol.Identity`
        (
            (
                "CREATE TABLE identity (id {int} PRIMARY KEY, name TEXT NOT NULL, since {int} NOT NULL,"
                " crc {int} NOT NULL)"
            ),
        ),
        names_store=True,
    ),
    TableMigration(
        4,
        # A column, because a second row in each commit would cost as much as the first. In `signatures`: which key
        # signs this store ("" for none), and the code of the snapshot, as `signature` describes it.
        "signatures",
        (
            "ALTER TABLE journal ADD COLUMN signature {bytes}",
            (
                "CREATE TABLE signatures (id {int} PRIMARY KEY, key_id TEXT NOT NULL, seq {int} NOT NULL,"
                " link {bytes} NOT NULL, code {bytes} NOT NULL, crc {int} NOT NULL)"
            ),
        ),
        (("INSERT INTO signatures VALUES (1, ?, ?, ?, ?, ?)", ("", 0, b"", b"", signature_crc("", 0, b"", b""))),),
    ),
)

LATEST: Final = MIGRATIONS[-1].number
NAMED_SINCE: Final = next(step.number for step in MIGRATIONS if step.names_store)
SIGNED_SINCE: Final = 4

_ADD_COLUMN: Final = re.compile(r"ALTER TABLE (\w+) ADD COLUMN (.+)")


def list_declared_tables(version: int, types: dict[str, str]) -> dict[str, str]:
    """Return how each table is declared after the first `version` steps, by its name: as SQLite keeps it."""
    tables: dict[str, str] = {}
    for step in MIGRATIONS[:version]:
        for statement in step.statements(types):
            column = _ADD_COLUMN.fullmatch(statement)
            if column is None:
                tables[statement.split(maxsplit=3)[2]] = statement
            else:
                tables[column[1]] = f"{tables[column[1]][:-1]}, {column[2]})"
    return tables
