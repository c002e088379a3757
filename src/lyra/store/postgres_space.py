"""A journal of its own beside the shards of a cluster, in the same PostgreSQL database: the durable run of a program.

It is a schema named after the cluster's and the run, with the tables of every store and the `notes` of a `Space`, so
that what executes or reads a run takes either. The name of a schema is short and has no capitals, so it has a hash
of the run's name.
"""

from __future__ import annotations

from base64 import b32encode
from hashlib import blake2b
from typing import Final

from lyra.errors import ConfigError, StoreError
from lyra.store.postgres import PostgresStore, split_schema
from lyra.store.signature import BEGINNING, Signer, is_same
from lyra.store.space import SPACE_NAME

RUN_SCHEMA: Final = "r[a-z2-7]{11}"  # of such a journal, behind the name of the cluster's schema, which has up to 50
_NOTES: Final = "CREATE TABLE IF NOT EXISTS notes (number BIGSERIAL PRIMARY KEY, data BYTEA NOT NULL)"
_SIGNED: Final = b"signed:"  # begins a note with a signature; no other note begins so, since it is a msgpack map


class PostgresSpace(PostgresStore):
    """The journal of the run `name` in the cluster of the URL, signed with a key that all its hosts have; made when
    missing, unless `make` is False."""

    def __init__(self, url: str, name: str, signer: Signer, *, durability: str = "process", make: bool = True) -> None:
        if not SPACE_NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} cannot be the name of a run",
                hint="use letters, digits, `.`, `_` and `-`, at most 64 of them, and begin with a letter or a digit",
            )
        self.name = name
        self.own_signer = signer
        self._makes = make
        plain, schema = split_schema(url)
        digest = b32encode(blake2b(name.encode(), digest_size=10).digest()).decode().lower()
        super().__init__(plain, durability=durability, schema=f"{schema or 'lyra'}_r{digest[:11]}")

    @property
    def path(self) -> str:
        return self.location

    def _migrate(self) -> None:
        if not self._makes:
            if not self._version():
                raise StoreError(f"the cluster has no run {self.name!r}", name=self.name)
            return
        super()._migrate()
        if self._ask("SELECT to_regclass(?)::text", (f"{self.schema}.notes",)) == [(None,)]:
            self._run(_NOTES)

    def leave_note(self, data: bytes) -> None:
        """Leave a message for the execution of the run; it is signed where this store is."""
        if self._signatures is not None:
            data = _SIGNED + self._signatures.sign_note(data) + data
        self._lasting(self._run, "INSERT INTO notes (data) VALUES (?)", (data,))

    def notes(self) -> list[tuple[int, bytes | None]]:
        """Return the messages by number, oldest first; None for one that a program without the key left in a signed
        run."""
        rows = self._lasting(self._ask, "SELECT number, data FROM notes ORDER BY number")
        return [(int(number), self._read_note(bytes(data))) for number, data in rows]

    def _read_note(self, data: bytes) -> bytes | None:
        is_signed, code = data.startswith(_SIGNED), len(_SIGNED) + len(BEGINNING)
        text = data[code:] if is_signed else data
        if self._signatures is None:
            return text
        return (
            text if is_same(self._signatures.sign_note(text), data[len(_SIGNED) : code] if is_signed else b"") else None
        )

    def drop_note(self, number: int) -> None:
        self._lasting(self._run, "DELETE FROM notes WHERE number = ?", (number,))
