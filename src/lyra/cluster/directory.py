"""The directory of a cluster: which hosts there are, and which host each shard is assigned to.

Three tables in the schema of the cluster's URL (`lyra`, or `?schema=name`); shard `s1` of it is the store in the
schema `lyra_s1`. A host keeps its row alive by renewing it; the clock is the server's. The assignment of a shard
changes only by compare-and-set of its number of moves, so two hosts never both believe to have made the same move.

The directory decides nothing about safety: who may write to a shard is decided by the lease in the shard's own store.
A wrong entry here costs time and no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import msgspec

from lyra.core.ids import Entropy
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, Conflict, StoreError

SHARDS: Final = 8  # of a new cluster
SHARDS_MAX: Final = 256
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_MAKING: Final = 0x4C796361  # the advisory lock that lets one process at a time make the tables: "Lyca"

UP: Final = "up"
DRAINING: Final = "draining"  # it gives its shards away and takes none

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS cluster (
        id integer PRIMARY KEY CHECK (id = 1), secret text NOT NULL, lease_s double precision NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS hosts (
        name text PRIMARY KEY, life text NOT NULL, address text NOT NULL, version text NOT NULL,
        format integer NOT NULL, state text NOT NULL, resources text NOT NULL, load text NOT NULL,
        since double precision NOT NULL, expires_at double precision NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS shards (
        name text PRIMARY KEY, number integer NOT NULL UNIQUE, host text NOT NULL, moves bigint NOT NULL,
        format integer NOT NULL, note text NOT NULL)""",
)
_NOW: Final = "extract(epoch FROM clock_timestamp())"


class HostRow(msgspec.Struct, frozen=True):
    """A host, as it told when it last renewed its row."""

    name: str
    life: str  # of one start of the host: another start under the same name has another
    address: str  # HOST:PORT of its peers' port
    version: str
    format: int  # the newest form of a store that it can open
    state: str = UP
    resources: Mapping[str, float] = {}
    load: Mapping[str, float] = {}
    since: float = 0.0
    expires_at: float = 0.0


class ShardRow(msgspec.Struct, frozen=True):
    """A shard: `host` is the name of the one that it is assigned to, "" for none."""

    name: str
    number: int
    host: str = ""
    moves: int = 0
    format: int = 0  # of its store: a host that knows only older ones cannot open it
    note: str = ""  # why its host could not open it


class View(msgspec.Struct, frozen=True):
    """The directory at one moment of the server's clock."""

    now: float
    lease_s: float
    hosts: Mapping[str, HostRow]
    shards: Mapping[str, ShardRow]

    def is_alive(self, host: str) -> bool:
        row = self.hosts.get(host)
        return row is not None and row.expires_at > self.now

    def alive(self) -> list[HostRow]:
        return [row for name, row in sorted(self.hosts.items()) if row.expires_at > self.now]

    def address_of(self, shard: str) -> str | None:
        """Return the address of the host that a shard is assigned to, if that one is alive."""
        row = self.shards.get(shard)
        return self.hosts[row.host].address if row is not None and self.is_alive(row.host) else None


class Directory(Protocol):
    """What a host asks of it. Calls block; a host makes them in a thread."""

    @property
    def secret(self) -> Secret: ...

    def join(self, host: HostRow) -> View:
        """Enter a host; Conflict while another one of that name is alive."""
        ...

    def renew(self, host: HostRow) -> View:
        """Keep a host's row alive; Conflict where it is gone or another start's by now."""
        ...

    def view(self) -> View: ...

    def assign(self, shard: str, host: str, moves: int) -> bool:
        """Give a shard to a host if it was moved so often; False where another move came first."""
        ...

    def note(self, shard: str, note: str, format_number: int) -> None: ...

    def set_state(self, host: str, state: str) -> bool:
        """Tell a host to drain, or to take shards again; False where there is none of that name."""
        ...

    def leave(self, host: HostRow) -> None:
        """Remove a host that gave its shards away, or that will not come back."""
        ...

    def store_of(self, shard: str) -> Any:
        """Return what a Kernel opens for a shard: a URL, or a Store."""
        ...

    def close(self) -> None: ...


def check_name(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{what} is {name!r}", hint="use lower-case letters, digits, dots and hyphens, at most 63")
    return name


class PostgresDirectory:
    """The directory in a schema of a PostgreSQL database."""

    def __init__(self, url: str, *, shards: int | None = None, lease_s: float | None = None, make: bool = True) -> None:
        from lyra.store.postgres import describe_url, split_schema

        self._plain_url, named = split_schema(url)
        self.schema = named or "lyra"
        self.location, self._hidden = describe_url(self._plain_url, self.schema)
        self._connection: Any = None
        if make:
            self._make(shards, lease_s)
        row = self._read("SELECT secret, lease_s FROM cluster")
        self.secret = Secret(row[0][0])
        self.lease_s = float(row[0][1])

    # ------------------------------------------------------------------ making it

    def _make(self, shards: int | None, lease_s: float | None) -> None:
        if shards is not None and not 1 <= shards <= SHARDS_MAX:
            raise ConfigError(f"a cluster has 1 to {SHARDS_MAX} shards, not {shards}", key="shards")
        with self._transaction() as ask:
            ask("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            ask(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
            for table in _TABLES:
                ask(table)
            ask(
                "INSERT INTO cluster VALUES (1, %s, %s) ON CONFLICT (id) DO NOTHING",
                (Entropy().token(), 3.0 if lease_s is None else lease_s),
            )
            known = int(ask("SELECT count(*) FROM shards")[0][0])
            for number in range(known + 1, max(known, shards or (0 if known else SHARDS)) + 1):
                ask("INSERT INTO shards VALUES (%s, %s, '', 0, 0, '')", (f"s{number}", number))

    def store_of(self, shard: str) -> str:
        sign = "&" if "?" in self._plain_url else "?"
        return f"{self._plain_url}{sign}schema={self.schema}_{shard}"

    # ------------------------------------------------------------------ hosts

    def join(self, host: HostRow) -> View:
        with self._transaction() as ask:
            held = ask(
                f"SELECT life, expires_at > {_NOW} FROM hosts WHERE name = %s FOR UPDATE",  # noqa: S608 - a constant
                (host.name,),
            )
            if held and held[0][1] and held[0][0] != host.life:
                raise Conflict(
                    f"a host named {host.name!r} is in the cluster already",
                    hint="give this one another name with --name, or wait until that one's lease is over",
                    name=host.name,
                )
            ask("DELETE FROM hosts WHERE name = %s", (host.name,))
            ask(
                f"INSERT INTO hosts VALUES (%s, %s, %s, %s, %s, %s, %s, %s, {_NOW}, {_NOW} + %s)",  # noqa: S608
                (*self._values(host), self.lease_s),
            )
        return self.view()

    @staticmethod
    def _values(host: HostRow) -> tuple[Any, ...]:
        tables = (msgspec.json.encode(host.resources).decode(), msgspec.json.encode(host.load).decode())
        return (host.name, host.life, host.address, host.version, host.format, host.state, *tables)

    def renew(self, host: HostRow) -> View:
        with self._transaction() as ask:
            kept = ask(
                f"UPDATE hosts SET expires_at = {_NOW} + %s, load = %s, address = %s"  # noqa: S608 - a constant
                " WHERE name = %s AND life = %s RETURNING name",
                (self.lease_s, msgspec.json.encode(host.load).decode(), host.address, host.name, host.life),
            )
            if not kept:
                raise Conflict(f"the row of host {host.name!r} is gone, or another start's by now", name=host.name)
        return self.view()

    def set_state(self, host: str, state: str) -> bool:
        return bool(self._read("UPDATE hosts SET state = %s WHERE name = %s RETURNING name", (state, host)))

    def leave(self, host: HostRow) -> None:
        self._read("DELETE FROM hosts WHERE name = %s AND life = %s RETURNING name", (host.name, host.life))

    # ------------------------------------------------------------------ shards

    def view(self) -> View:
        with self._transaction() as ask:
            ((now,),) = ask(f"SELECT {_NOW}")
            hosts = ask(
                "SELECT name, life, address, version, format, state, resources, load, since, expires_at FROM hosts"
            )
            shards = ask("SELECT name, number, host, moves, format, note FROM shards ORDER BY number")
        read = msgspec.json.decode
        rows = [HostRow(*row[:6], read(row[6]), read(row[7]), *row[8:]) for row in hosts]  # type: ignore[call-arg]
        return View(
            float(now), self.lease_s, {row.name: row for row in rows}, {row[0]: ShardRow(*row) for row in shards}
        )

    def assign(self, shard: str, host: str, moves: int) -> bool:
        return bool(
            self._read(
                "UPDATE shards SET host = %s, moves = moves + 1 WHERE name = %s AND moves = %s RETURNING name",
                (host, shard, moves),
            )
        )

    def note(self, shard: str, note: str, format_number: int) -> None:
        self._read(
            "UPDATE shards SET note = %s, format = greatest(format, %s) WHERE name = %s RETURNING name",
            (note, format_number, shard),
        )

    # ------------------------------------------------------------------ the connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _live(self) -> Any:
        from lyra.store.postgres import connect

        if self._connection is None or self._connection.closed:
            self._connection = connect(self._plain_url, self.location, self._hidden)
            self._connection.execute("SELECT set_config('search_path', %s, false)", (self.schema,))
        return self._connection

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._transaction() as ask:
            return ask(statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
        import psycopg

        from lyra.store.postgres import first_line

        try:
            connection = self._live()
            with connection.transaction():

                def ask(statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
                    cursor = connection.execute(statement, values)
                    return list(cursor.fetchall()) if cursor.description is not None else []

                yield ask
        except psycopg.Error as error:
            self.close()
            hint = None
            if getattr(error, "sqlstate", None) in ("42P01", "3F000"):
                hint = "there is no cluster here yet: lyra cluster start --store URL makes it"
            raise StoreError(
                f"the directory in {self.location} cannot be used: {first_line(error, self._hidden)}", hint=hint
            ) from None


class MemoryDirectory:
    """A directory in memory, for hosts of one process: tests and simulated worlds. `now` is its clock."""

    def __init__(
        self, shards: Sequence[str], now: Callable[[], float], *, lease_s: float = 3.0, stores: Mapping[str, Any] = {}
    ) -> None:
        self.secret = Secret("memory")
        self.lease_s = lease_s
        self._now = now
        self._hosts: dict[str, HostRow] = {}
        self._shards = {name: ShardRow(name, number) for number, name in enumerate(shards, 1)}
        self._stores = stores

    def join(self, host: HostRow) -> View:
        held = self._hosts.get(host.name)
        if held is not None and held.expires_at > self._now() and held.life != host.life:
            raise Conflict(f"a host named {host.name!r} is in the cluster already", name=host.name)
        now = self._now()
        self._hosts[host.name] = msgspec.structs.replace(host, since=now, expires_at=now + self.lease_s)
        return self.view()

    def renew(self, host: HostRow) -> View:
        held = self._hosts.get(host.name)
        if held is None or held.life != host.life:
            raise Conflict(f"the row of host {host.name!r} is gone, or another start's by now", name=host.name)
        self._hosts[host.name] = msgspec.structs.replace(held, load=host.load, expires_at=self._now() + self.lease_s)
        return self.view()

    def view(self) -> View:
        return View(self._now(), self.lease_s, dict(self._hosts), dict(self._shards))

    def assign(self, shard: str, host: str, moves: int) -> bool:
        row = self._shards[shard]
        if row.moves != moves:
            return False
        self._shards[shard] = msgspec.structs.replace(row, host=host, moves=moves + 1)
        return True

    def note(self, shard: str, note: str, format_number: int) -> None:
        row = self._shards[shard]
        self._shards[shard] = msgspec.structs.replace(row, note=note, format=max(row.format, format_number))

    def set_state(self, host: str, state: str) -> bool:
        if host not in self._hosts:
            return False
        self._hosts[host] = msgspec.structs.replace(self._hosts[host], state=state)
        return True

    def leave(self, host: HostRow) -> None:
        held = self._hosts.get(host.name)
        if held is not None and held.life == host.life:
            del self._hosts[host.name]

    def store_of(self, shard: str) -> Any:
        return self._stores[shard]

    def close(self) -> None:
        """There is nothing to close."""
