"""A Store in PostgreSQL, for kernels on many machines around one database.

Owns one connection and one schema (`lyra`, or `?schema=name` in the URL). The rules are in `sql`, the tables in
`migrations`; this module has what differs: an append is one statement and one round trip, which takes the lease row's
lock, checks the epoch and the last seq and inserts the whole batch, and every other change begins by taking that same
lock. Leases are judged by the server's clock, which all owners share. The password is kept for reconnecting and shown
nowhere: not in `location`, not in errors. psycopg is imported at first use.

A connection that is lost (the server restarts) is made again, with a back-off, for up to a minute, and the call that
met it is made once more; its caller only waits. So is one to a server that takes no changes any more, since another was
made the primary: the URL may name several servers. Every call can be repeated: the rows of an append that may have
arrived are there, under this owner's epoch, or they are not, and are sent again. Where another owner has taken the
store over meanwhile, the epoch says so.

Durability. The death of the Lyra process loses nothing that PostgreSQL acknowledged, whatever the setting. The setting
chooses which failures of the server the rows survive. `process` asks for `synchronous_commit=local`: flushed to the
server's own disk, so that a restart of the server does not take finished effects back (`off` would), without waiting
for standbys. `power` asks for `on`: synchronous standbys, where there are any, have it too; and it refuses a server
that runs with `fsync=off`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lyra.core.clock import SystemClock, block
from lyra.core.limits import STORE_RECONNECT_S
from lyra.core.own_files import FULL_ERRNOS
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, Conflict, StoreError, StoreFull
from lyra.store.migrations import NAMED_SINCE, POSTGRES_TYPES, SIGNED_SINCE
from lyra.store.protocol import Identity, Lease, Snapshot, out_of_order
from lyra.store.rows import Rows, dense, seal
from lyra.store.signing import RowAfter, SigningStore, StoreContents
from lyra.store.sql import Head, Row

if TYPE_CHECKING:
    import psycopg


T = TypeVar("T")

_log: Final = logging.getLogger("lyra.store")
_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 1.0
# Without these a server whose machine is gone is waited for as long as the operating system likes: hours.
_ALIVE: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

# A change that stands still, in a process that is held or behind a network that is parted, must not keep its lock from
# the next owner: the server ends it after so long. It is made again when its process goes on, if that still may.
_HELD_MS: Final = 2_000
_HELD_LONG_MS: Final = 60_000  # of a change between whose statements much is read, compared or signed

_SYNCHRONOUS: Final = {"process": "local", "power": "on"}
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_MIGRATING: Final = 0x4C797261  # the advisory lock that lets one process at a time create or alter tables: "Lyra"

# The lock in `fence` waits for a transaction that changes the lease, then reads the epoch again: an owner that lost its
# lease inserts nothing. Nearly all commits are one batch, which as plain values costs half of what arrays of one do.
_APPEND: Final = b"""
WITH fence AS (SELECT id FROM lease WHERE id = 1 AND epoch = %b FOR UPDATE)
INSERT INTO journal (seq, rows, data, crc, signature)
SELECT batch.* FROM fence, (BATCH) AS batch
WHERE %b = coalesce((SELECT seq + rows - 1 FROM journal ORDER BY seq DESC LIMIT 1), (SELECT first_seq - 1 FROM meta))
"""
_APPEND_ONE: Final = _APPEND.replace(b"BATCH", b"SELECT %b::bigint, %b::bigint, %b::bytea, %b::bigint, %b::bytea")
_APPEND_MANY: Final = _APPEND.replace(
    b"BATCH", b"SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[], %b::bigint[], %b::bytea[])"
)

# What a busy kernel commits at once is large enough for PostgreSQL to compress, with pglz unless it is told otherwise:
# that took three quarters of all that a commit costs the server. lz4 does it in a tenth of the time.
_COMPRESS: Final = (
    "SELECT set_config(name, 'lz4', false) FROM pg_settings"
    " WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)"
)

# SQLSTATE codes (or their classes), by what they mean to the caller.
_UNIQUE: Final = "23505"
_BUSY: Final = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock not available
_FULL: Final = {"53100", "53200"}  # disk full, out of memory
_UNNAMED: Final = {"XX000", "58030"}  # internal error, I/O error: a used-up quota is told in the message alone
_DAMAGED: Final = {"XX001", "XX002", "42P01", "42703"}  # data or index corrupted, a table or column of ours is gone
_READ_ONLY: Final = "25006"  # a read-only transaction
_FORBIDDEN: Final = {"42501", _READ_ONLY}  # insufficient privilege


class _ConnectionLost(StoreError):
    """The connection broke: whether the change that was under way arrived is not known."""


class PostgresStore(SigningStore):
    """A journal in one schema of a PostgreSQL database."""

    inline = False
    has_clock = True
    _is_writable = True  # False where it is only read, of a standby maybe

    def __init__(self, url: str, *, durability: str = "process", schema: str | None = None) -> None:
        if durability not in _SYNCHRONOUS:
            raise ConfigError(f"durability is {durability!r}", hint="use 'process' or 'power'")
        _driver()
        self._durability = durability
        plain_url, named = split_schema(url)
        self.schema = schema or named or "lyra"
        if not _SCHEMA.fullmatch(self.schema):
            raise ConfigError(
                f"schema is {self.schema!r}", hint="use lower-case letters, digits and underscores, at most 63"
            )
        self._location, self._secret = describe_url(plain_url, self.schema)
        self._url = Secret(plain_url)
        self._is_repeatable = False  # inside a call that is made once more if the connection breaks
        self._held_ms = _HELD_MS
        self._connection: psycopg.Connection[Row] | None = None
        try:
            self._connection = self._connect()
            self._prepare()
            if self._durability == "power" and self._ask("SHOW fsync") == [("off",)]:
                raise ConfigError(
                    f"{self.location} runs with fsync=off and cannot promise durability = 'power'",
                    hint="set fsync=on on the server, or use durability = 'process'",
                )
            self._migrate()
            rows = self._ask("SELECT number, name, crc FROM migrations ORDER BY number")
            self._check_migrations(len(rows), rows)
            self._check_tail()
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> str:
        return self._location

    # ------------------------------------------------------------ opening
    def _connect(self) -> psycopg.Connection[Row]:
        return connect(self._url.reveal(), self.location, self._secret)

    def _prepare(self) -> None:
        """Tell a new connection what every connection has to know."""
        self._ask("SELECT set_config('search_path', ?, false)", (self.schema,))
        self._ask("SELECT set_config('synchronous_commit', ?, false)", (_SYNCHRONOUS[self._durability],))
        self._ask(_COMPRESS)

    def _migrate(self) -> None:
        if self._pending(self._version()):
            self._raise_if_cluster()
            with self._transaction("BEGIN"):
                self._ask("SELECT pg_advisory_xact_lock(?)", (_MIGRATING,))
                if not self._ask("SELECT 1 FROM pg_namespace WHERE nspname = ?", (self.schema,)):
                    self._run(f'CREATE SCHEMA "{self.schema}"')  # words of SQL, such as `user`, are names, too
                for migration in self._pending(self._version()):
                    self._apply(migration, POSTGRES_TYPES)

    def _raise_if_cluster(self) -> None:
        """Refuse the schema of a cluster's directory: a store there would be no shard, and in no backup of it."""
        names = [f"{self.schema}.{table}" for table in ("cluster", "hosts", "shards")]
        if (None,) not in self._ask("SELECT to_regclass(name)::text FROM unnest(?::text[]) AS name", (names,)):
            raise ConfigError(
                f"{self.location} is a cluster, and no store",
                hint="lyra.cluster.connect(URL) uses it, --shard names a store of it, ?schema=NAME makes one beside it",
            )

    def _version(self) -> int:
        """Return the number of the newest migration applied; 0 when the table of migrations does not exist yet."""
        name = f"{self.schema}.migrations"
        if self._ask("SELECT to_regclass(?)::text", (name,)) == [(None,)]:
            return 0
        return int(self._ask("SELECT coalesce(max(number), 0) FROM migrations")[0][0])

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(_driver().Error):
                connection.close()

    # ------------------------------------------------------------ a connection that is lost
    def _lasting(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Make a call; where the connection breaks, connect again and repeat it."""
        if self._is_repeatable:
            return call(*args, **kwargs)
        self._is_repeatable = True
        try:
            while True:
                try:
                    return call(*args, **kwargs)
                except _ConnectionLost as lost:
                    self._reconnect(lost)
        finally:
            self._is_repeatable = False

    def _at_length(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Make a call whose change takes its time between statements."""
        self._held_ms = _HELD_LONG_MS
        try:
            return call(*args, **kwargs)
        finally:
            self._held_ms = _HELD_MS

    def _reconnect(self, lost: _ConnectionLost) -> None:
        """Connect again, waiting longer after each failure; StoreError when the server stays away."""
        _log.warning("%s; connecting again for up to %g s", lost.message, STORE_RECONNECT_S)
        clock = SystemClock()
        began_s, delay_s = clock.monotonic(), _RETRY_FIRST_S
        while self._connection is not None:
            try:
                self._connection.close()
                self._connection = self._connect()
                self._prepare()
                if self._is_writable and self._ask("SHOW transaction_read_only") == [("on",)]:
                    raise StoreError(f"{self.location} takes no changes: it is a standby")
            except StoreError as error:
                if clock.monotonic() - began_s >= STORE_RECONNECT_S:
                    raise StoreError(
                        f"{lost.message}; the server did not come back within {STORE_RECONNECT_S:g} s",
                        hint="start again when the server is back; whether the last change arrived is in the journal",
                    ) from error
                block(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MOST_S)
            else:
                _log.warning("connected to %s again after %.1f s", self.location, clock.monotonic() - began_s)
                return
        raise lost

    def acquire(self, owner: str, *, now: float | None, ttl_s: float) -> Lease:
        may_be_ours = False

        def take() -> Lease:
            nonlocal may_be_ours
            if may_be_ours and self._lease().owner == owner:
                return self._lease()
            may_be_ours = True
            return super(PostgresStore, self).acquire(owner, now=now, ttl_s=ttl_s)

        return self._lasting(take)

    def renew(self, lease: Lease, *, now: float | None, ttl_s: float) -> Lease:
        return self._lasting(super().renew, lease, now=now, ttl_s=ttl_s)

    def release(self, lease: Lease) -> None:
        self._lasting(super().release, lease)

    def holder(self) -> Lease | None:
        return self._lasting(super().holder)

    def identity(self) -> Identity:
        return self._lasting(super().identity)

    def file_id(self) -> str:
        """Return the id of this store: a schema holds one."""
        return self.identity().id

    def keys_of_file(self) -> set[str]:
        """Return the id of the key that signs this store, "" for none; empty where it holds nothing."""
        return set() if self.holds_nothing() else {self.get_signing_key()}

    def get_signing_key(self) -> str:
        return self._lasting(super().get_signing_key)

    def begin_signing(self, epoch: int) -> None:
        self._lasting(super().begin_signing, epoch)

    def contents(self) -> StoreContents:
        return self._lasting(super().contents)

    def check_signatures(self) -> list[str]:
        return self._lasting(super().check_signatures)

    def sign_all(self, epoch: int, fingerprint: bytes, more: Sequence[RowAfter] = ()) -> None:
        self._lasting(self._at_length, super().sign_all, epoch, fingerprint, more)

    def clock_s(self) -> float:
        return float(self._lasting(self._ask, "SELECT extract(epoch FROM clock_timestamp())")[0][0])

    def save_snapshots(
        self, seq: int, states: Mapping[str, bytes | None], epoch: int, *, unneeded_blobs: Sequence[str] = ()
    ) -> None:
        self._lasting(self._at_length, super().save_snapshots, seq, states, epoch, unneeded_blobs=unneeded_blobs)

    def load_snapshots(self) -> Snapshot:
        return self._lasting(super().load_snapshots)

    def put_blob(self, data: bytes) -> str:
        return self._lasting(super().put_blob, data)

    def get_blob(self, digest: str) -> bytes:
        return self._lasting(super().get_blob, digest)

    def compact(self, *, before: float, epoch: int, most: int | None = None) -> int:
        count: int = self._lasting(self._at_length, super().compact, before=before, epoch=epoch, most=most)
        return count

    def _head(self) -> Head:
        return self._lasting(super()._head)

    def _page(self, first: int, last: int) -> list[Row]:
        return self._lasting(super()._page, first, last)

    # ------------------------------------------------------------ journal
    def append(self, records: Rows, epoch: int) -> None:
        if not records:
            self._lasting(self._fence, epoch)
            return
        first = dense(records)
        batches = self._lasting(self._sign, seal(records))
        rows = [(*batch[:4], batch[4] or b"") for batch in batches]
        statement, values = _APPEND_ONE, list(rows[0])
        if len(rows) > 1:
            statement, values = _APPEND_MANY, [list(column) for column in zip(*rows, strict=True)]
        may_be_there = False

        def insert() -> None:
            nonlocal may_be_there
            if may_be_there and self._has_arrived(records[-1][0], epoch):
                return
            may_be_there = True
            if self._change(statement, (epoch, *values, first - 1)) != len(batches):
                # Nothing was inserted: say which of the two conditions did not hold.
                with self._writing():
                    self._fence(epoch)
                    raise out_of_order(first, self._head().last_seq)

        self._lasting(insert)
        self._wrote(records[-1][0])

    def _has_arrived(self, last: int, epoch: int) -> bool:
        """Return whether a batch whose commit was not answered is there: under this epoch only this object appends."""
        with self._writing():
            self._fence(epoch)
            return self._head().last_seq == last

    # ------------------------------------------------------------ the hooks of SqlStore
    def _live(self) -> psycopg.Connection[Row]:
        if self._connection is None:
            raise StoreError(f"the store {self.location} is closed")
        return self._connection

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        connection = self._live()
        try:
            return connection.execute(_marks(statement), values, binary=True).fetchall()
        except _driver().Error as error:
            raise self._error(error) from error

    def _run(self, statement: str, values: Sequence[Any] = ()) -> int:
        return self._change(_marks(statement), values)

    def _change(self, statement: bytes, values: Sequence[Any]) -> int:
        connection = self._live()
        try:
            return connection.execute(statement, values).rowcount
        except _driver().Error as error:
            raise self._error(error) from error

    def _run_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        connection = self._live()
        try:
            with connection.cursor() as cursor:
                cursor.executemany(_marks(statement), values)
        except _driver().Error as error:
            raise self._error(error) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._transaction("BEGIN"):
            # The lock that every change takes first, and how long it may stand still.
            limit = "set_config('idle_in_transaction_session_timeout', ?, true)"
            self._ask(f"SELECT id, {limit} FROM lease FOR UPDATE", (str(self._held_ms),))  # noqa: S608 - a constant
            yield

    def _reading(self) -> Any:
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._run(begin)
        try:
            yield
        except BaseException:
            with suppress(StoreError):
                self._run("ROLLBACK")
            raise
        self._run("COMMIT")

    def _engine_faults(self) -> list[str]:
        """PostgreSQL verifies its pages as they are read; the walk over all rows that follows reads them."""
        return []

    # ------------------------------------------------------------ errors
    def _error(self, error: psycopg.Error) -> StoreError:
        """PostgreSQL's error as the StoreError that fits its SQLSTATE."""
        state = error.sqlstate or ""
        is_demoted = state == _READ_ONLY and self._is_writable  # another server was made the primary
        if self._connection is not None and (self._connection.closed or is_demoted):
            return _ConnectionLost(
                f"the connection to {self.location} is lost: {self._sentence(error)}",
                hint="start again when the server is back; whether the last change arrived is in the journal",
            )
        if state == _UNIQUE:
            return Conflict(f"another writer committed first in {self.location}; nothing was written")
        if state in _BUSY:
            return Conflict(f"{self.location} is locked by another writer", hint="try again")
        if state in _FULL or (state in _UNNAMED and any(os.strerror(number) in str(error) for number in FULL_ERRNOS)):
            return StoreFull(
                f"there is no room left for {self.location}",
                hint="free some space on the server; the store goes on where it stopped",
            )
        if state in _DAMAGED:
            return self._corrupt(self._sentence(error))
        hint = "look at the rights of this user in the schema" if state in _FORBIDDEN else None
        return StoreError(f"{self.location} refused: {self._sentence(error)}", hint=hint, sqlstate=state)

    def _sentence(self, error: psycopg.Error) -> str:
        """Return the first line of a driver's message, without the password should it quote one."""
        return first_line(error, self._secret)


def connect(url: str, location: str, password: str) -> psycopg.Connection[Row]:
    """Connect to a database by a URL without `schema=`; errors name the location and never the password."""
    from psycopg.conninfo import conninfo_to_dict

    driver = _driver()
    settings = {name: value for name, value in _ALIVE.items() if name not in conninfo_to_dict(url)}
    try:
        connection: psycopg.Connection[Row] = driver.connect(url, **settings, autocommit=True, application_name="lyra")
        return connection
    except driver.Error as error:
        # Not chained: a driver's own exception may quote the URL.
        raise StoreError(
            f"cannot connect to {location}: {first_line(error, password)}",
            hint="is the server running, and may this user connect to this database?",
        ) from None


def first_line(error: Exception, password: str) -> str:
    """Return the first line of a driver's message, without the password should it quote one."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line.replace(password, "***") if password else line


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise ConfigError(
            "PostgreSQL stores need psycopg, which is not installed",
            hint="install it with: pip install 'lyra-agents[postgres]'",
        ) from None
    return psycopg


@cache
def _marks(statement: str) -> bytes:
    """Return the statement with psycopg's `%s` in place of `?`."""
    return statement.replace("?", "%s").encode()


def split_schema(url: str) -> tuple[str, str | None]:
    """Return the URL without Lyra's own `schema=`, which libpq would refuse, and the schema it names."""
    place, _, query = url.partition("?")
    settings = [setting for setting in query.split("&") if setting]
    named = [setting for setting in settings if setting.startswith("schema=")]
    kept = "&".join(setting for setting in settings if setting not in named)
    return f"{place}?{kept}" if kept else place, named[-1].removeprefix("schema=") if named else None


def describe_url(url: str, schema: str) -> tuple[str, str]:
    """Return the store's location without the password, and the password, so that messages can be redacted."""
    _driver()
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        known = conninfo_to_dict(url)
    except ProgrammingError:
        raise ConfigError(
            "the PostgreSQL URL cannot be read",
            hint="write postgresql://user:password@host:port/database, with special signs as %XX",
        ) from None
    host, port = known.get("host") or "localhost", known.get("port")
    address = f"{host}:{port}" if port else str(host)
    return f"postgresql://{address}/{known.get('dbname') or ''}?schema={schema}", str(known.get("password") or "")


class PostgresReader(PostgresStore):
    """The store in a schema of a PostgreSQL database, over a connection that cannot write: the server refuses changes.

    Its tables are neither made nor brought up to date; a user who may only read is enough."""

    _is_writable = False

    def _prepare(self) -> None:
        super()._prepare()
        self._ask("SELECT set_config('default_transaction_read_only', 'on', false)")

    def _migrate(self) -> None:
        """Take the tables as they are."""
        version = self._version()
        if not version:
            self._raise_if_cluster()
            raise StoreError(
                f"there is no store in {self.location}", hint="a kernel makes it when it first opens; is the URL right?"
            )
        self._is_named, self._has_signatures = version >= NAMED_SINCE, version >= SIGNED_SINCE
