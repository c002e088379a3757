"""Every part of a SQLite store, read and written with right checksums: what a hostile program can do to the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from zlib import crc32

import msgspec

from lyra.core import codec
from lyra.kernel.journal import rows
from lyra.store.migrations import identity_crc, meta_crc, signature_crc
from lyra.store.protocol import Record
from lyra.store.rows import seal, state_crc, total_of, unseal

__all__ = ["Editor"]

Change = Callable[[Record], Record | None]


class Editor:
    """The journal of a store (or of a run in its file) as a list of batches, and the tables beside it."""

    def __init__(self, path: Path, run: str = "") -> None:
        self.path = path
        self.prefix = f"{run}/" if run else ""
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous=OFF")
        self.batches: list[tuple[list[Record], bytes | None]] = []
        self._touched = False

    def __enter__(self) -> Self:
        for batch in self.ask("SELECT seq, rows, data, crc, signature FROM {journal} ORDER BY seq"):
            records = unseal(batch)
            assert records is not None
            self.batches.append((records, batch[4]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._touched:
            self.write()
        self.connection.close()

    # ------------------------------------------------------------ SQL
    def ask(self, statement: str, *values: Any) -> list[Any]:
        tables = ("journal", "snapshots", "meta", "identity", "signatures", "notes", "lease")
        named = {table: f'"{self.prefix}{table}"' for table in tables}
        return self.connection.execute(statement.format(**named), values).fetchall()

    def write(self) -> None:
        """Write the batches back; done at the end, too."""
        self._touched = False
        self.ask("BEGIN")
        self.ask("DELETE FROM {journal}")
        for records, signature in self.batches:
            for seq, count, data, crc, _ in seal(records) if records else ():
                sealed = crc32(signature or b"", crc)
                self.ask("INSERT INTO {journal} VALUES (?, ?, ?, ?, ?)", seq, count, data, sealed, signature)
        self.ask("COMMIT")

    # ------------------------------------------------------------ journal
    def records(self) -> Iterator[Record]:
        for records, _ in self.batches:
            yield from records

    @property
    def last_seq(self) -> int:
        return max((record.seq for record in self.records()), default=0)

    def find(self, kind: str, pid: str = "") -> Record | None:
        return next((row for row in self.records() if row.kind == kind and pid in ("", row.pid)), None)

    def change(self, target: Record, by: Change) -> None:
        """Change one row, or take it out (None); the rows after it keep their numbers only if none goes."""
        self._touched = True
        for index, (records, signed) in enumerate(self.batches):
            if target in records:
                changed = [by(row) if row is target or row == target else row for row in records]
                kept = [row for row in changed if row is not None]
                self.batches[index] = kept, signed
        self.batches = [batch for batch in self.batches if batch[0]]

    def change_data(self, target: Record, **fields: Any) -> None:
        """Change fields of a row that is a struct of `rows`, or of a fact, which is a mapping."""
        self.change(target, lambda row: row._replace(data=edited(row.kind, row.data, fields)))

    def append(self, kind: str, pid: str, row: Any, signature: bytes | None = None) -> None:
        self._touched = True
        time = max(record.time for record in self.records())
        data = rows.encode(row) if isinstance(row, msgspec.Struct) else codec.encode(row)
        self.batches.append(([Record(self.last_seq + 1, time, pid, kind, data)], signature))

    def insert(self, before: Record, kind: str, pid: str, row: Any) -> None:
        """Put a row in the middle; the later ones are numbered anew."""
        data = rows.encode(row) if isinstance(row, msgspec.Struct) else codec.encode(row)
        new = Record(before.seq, before.time, pid, kind, data)
        self._touched = True
        for index, (records, signed) in enumerate(self.batches):
            if before in records:
                place = records.index(before)
                self.batches[index] = [*records[:place], new, *records[place:]], signed
                break
        self.renumber()

    def renumber(self) -> None:
        """Give the rows numbers without holes."""
        self._touched = True
        seq = self.batches[0][0][0].seq
        batches = []
        for records, signed in self.batches:
            batches.append(([row._replace(seq=seq + index) for index, row in enumerate(records)], signed))
            seq += len(records)
        self.batches = batches

    def resign(self, sign: Callable[[int, bytes | None], bytes | None]) -> None:
        """Other signatures: `sign` gets the number of the batch and the signature that it has."""
        self._touched = True
        self.batches = [(records, sign(index, signed)) for index, (records, signed) in enumerate(self.batches)]

    # ------------------------------------------------------------ the other tables
    def states(self) -> dict[str, bytes]:
        return dict(self.ask("SELECT pid, data FROM {snapshots}"))

    def put_states(self, states: dict[str, bytes], *, snapshot_seq: int | None = None) -> None:
        """Replace the snapshot; its totals fit."""
        self.ask("DELETE FROM {snapshots}")
        crcs = {pid: state_crc(pid, data) for pid, data in states.items()}
        for pid, data in states.items():
            self.ask("INSERT INTO {snapshots} VALUES (?, ?, ?)", pid, data, crcs[pid])
        ((first, seq),) = self.ask("SELECT first_seq, snapshot_seq FROM {meta}")
        values = (
            first,
            seq if snapshot_seq is None else snapshot_seq,
            len(states),
            total_of(0, added=sum(crcs.values())),
        )
        self.ask(
            "UPDATE {meta} SET first_seq = ?, snapshot_seq = ?, states = ?, states_total = ?, crc = ?",
            *values,
            meta_crc(*values),
        )

    @property
    def snapshot_seq(self) -> int:
        return int(self.ask("SELECT snapshot_seq FROM {meta}")[0][0])

    def signature(self) -> tuple[str, int, bytes, bytes]:
        ((key_id, seq, link, code),) = self.ask("SELECT key_id, seq, link, code FROM {signatures}")
        return key_id, seq, link, code

    def put_signature(self, key_id: str, seq: int, link: bytes, code: bytes) -> None:
        values = (key_id, seq, link, code)
        self.ask(
            "UPDATE {signatures} SET key_id = ?, seq = ?, link = ?, code = ?, crc = ?", *values, signature_crc(*values)
        )

    def put_identity(self, name: str, since: int) -> None:
        self.ask("UPDATE {identity} SET name = ?, since = ?, crc = ?", name, since, identity_crc(name, since))

    def strip(self) -> None:
        """Take every signature away, as if no version had ever signed."""
        self.resign(lambda _index, _signed: None)
        self.put_signature("", 0, b"", b"")


def edited(kind: str, data: bytes, fields: dict[str, Any]) -> bytes:
    if kind in rows.DECODERS:
        row = rows.DECODERS[kind].decode(data)
        return bytes(rows.encode(msgspec.structs.replace(row, **fields)))
    return bytes(codec.encode({**codec.decode(data), **fields}))
