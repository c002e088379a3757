"""PostgresReader: a store in PostgreSQL that is only read. Its schema is neither made nor brought up to date.

The connection is told that its transactions are read-only, so that the server itself refuses every change; a user who
may only read is enough.
"""

from __future__ import annotations

from lyra.errors import StoreError
from lyra.store.migrations import NAMED_SINCE, SIGNED_SINCE
from lyra.store.postgres import PostgresStore


class PostgresReader(PostgresStore):
    """The store in a schema of a PostgreSQL database, over a connection that cannot write."""

    def _prepare(self) -> None:
        super()._prepare()
        self._ask("SELECT set_config('default_transaction_read_only', 'on', false)")

    def _migrate(self) -> None:
        """Take the tables as they are."""
        version = self._version()
        if not version:
            raise StoreError(
                f"there is no store in {self.location}", hint="a kernel makes it when it first opens; is the URL right?"
            )
        self._is_named, self._has_signatures = version >= NAMED_SINCE, version >= SIGNED_SINCE
