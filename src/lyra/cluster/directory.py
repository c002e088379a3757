"""The directory of a cluster: which hosts there are, and which host each shard is assigned to.

Three tables in the schema of the cluster's URL (`lyra`, or `?schema=name`); shard `s1` of it is the store in the
schema `lyra_s1`. A host keeps its row alive by renewing it; the clock is the server's. The assignment of a shard
changes only by compare-and-set of its number of moves, so two hosts never both believe to have made the same move.

Every change has a number, so that a host that renews is told only of rows that changed since it looked last, of the
hosts that are dead, and of the load of a few others: what a beat reads does not grow with the cluster.

The directory decides nothing about safety: who may write to a shard is decided by the lease in the shard's own store.
A wrong entry here costs time and no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, Protocol

import msgspec

from lyra.core.ids import Entropy, random_key
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, Conflict, NoCluster, StoreError
from lyra.store import KeyedStore
from lyra.store.signature import Signer

SHARDS: Final = 8  # of a new cluster
SHARDS_MAX: Final = 4_096
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,49}")  # with `_s256` behind it, it is the schema of a shard
_MAKING: Final = 0x4C796361  # the advisory lock that lets one process at a time make the tables: "Lyca"

_HELD_MS: Final = 2_000  # a transaction that stands still is ended after so long: all of them take milliseconds

UP: Final = "up"
DRAINING: Final = "draining"  # it gives its shards away and takes none
LEFT: Final = "left"  # it is no part of the cluster any more; the row tells the others

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS cluster (
        id integer PRIMARY KEY CHECK (id = 1), secret text NOT NULL, key text NOT NULL,
        lease_s double precision NOT NULL, changes bigint NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS hosts (
        name text PRIMARY KEY, life text NOT NULL, address text NOT NULL, version text NOT NULL,
        format integer NOT NULL, state text NOT NULL, resources text NOT NULL, load text NOT NULL,
        since double precision NOT NULL, expires_at double precision NOT NULL, change bigint NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS hosts_expiry ON hosts (expires_at)",
    """CREATE TABLE IF NOT EXISTS shards (
        name text PRIMARY KEY, number integer NOT NULL UNIQUE, host text NOT NULL, moves bigint NOT NULL,
        format integer NOT NULL, note text NOT NULL, change bigint NOT NULL)""",
)
_LEFT_KEPT_S: Final = 86_400.0  # the row of a host that left, and of one that has not renewed it
_NOW: Final = "extract(epoch FROM clock_timestamp())"
# Each change takes the row of the cluster first: changes become visible in the order of their numbers.
_CHANGE: Final = "WITH change AS (UPDATE cluster SET changes = changes + 1 RETURNING changes)"
_NUMBER: Final = "(SELECT changes FROM change)"
_JOIN: Final = (
    f"{_CHANGE} INSERT INTO hosts (name, life, address, version, format, state, resources, load, since, expires_at,"  # noqa: S608
    f" change) SELECT %s, %s, %s, %s, %s, %s, %s, %s, {_NOW}, {_NOW} + %s, changes FROM change"
)
_SET_STATE: Final = (
    f"{_CHANGE} UPDATE hosts SET state = %s, change = {_NUMBER}"  # noqa: S608 - constants
    " WHERE name = %s AND (life = %s OR %s) AND state <> 'left' RETURNING name"
)
# Hosts that died long ago and did not come back under their names. That they left is told to the others, and kept.
_GIVE_UP: Final = (
    f"{_CHANGE} UPDATE hosts SET state = 'left', expires_at = {_NOW}, change = {_NUMBER}"  # noqa: S608 - constants
    f" WHERE state <> 'left' AND expires_at < {_NOW} - %s"
)
_ASSIGN: Final = (
    f"{_CHANGE} UPDATE shards SET host = %s, moves = moves + 1, change = {_NUMBER}"  # noqa: S608 - constants
    " WHERE name = %s AND moves = %s RETURNING name"
)
_NOTE: Final = (
    f"{_CHANGE} UPDATE shards SET note = %s, format = greatest(format, %s), change = {_NUMBER}"  # noqa: S608
    " WHERE name = %s RETURNING name"
)
_HOST: Final = "SELECT name, life, address, version, format, state, resources, load, since FROM hosts"
_SHARD: Final = "SELECT name, number, host, moves, format, note FROM shards"
LOADS: Final = 16  # of other hosts, told at each beat


class HostRow(msgspec.Struct, frozen=True):
    """A host, as it told when it last renewed its row."""

    name: str
    life: str  # of one start of the host: another start under the same name has another
    address: str  # HOST:PORT of its peers' port; of a host that Ray started ray:NAME@HOST:PORT
    version: str
    format: int  # the newest form of a shard that it can open: `host.FORMAT`
    state: str = UP
    resources: Mapping[str, float] = {}
    load: Mapping[str, float] = {}
    since: float = 0.0


class ShardRow(msgspec.Struct, frozen=True):
    """A shard: `host` is the name of the one that it is assigned to, "" for none."""

    name: str
    number: int
    host: str = ""
    moves: int = 0
    format: int = 0  # the newest form that a host has opened it in: one that knows only older ones does not get it
    note: str = ""  # why its host could not open it


class View(msgspec.Struct, frozen=True):
    """The directory at one moment of the server's clock."""

    now: float
    lease_s: float
    hosts: Mapping[str, HostRow]
    shards: Mapping[str, ShardRow]
    expired: frozenset[str] = frozenset()  # hosts that have not renewed their rows in time
    changes: int = 0  # the number of the last change

    def is_alive(self, host: str) -> bool:
        return host in self.hosts and host not in self.expired

    def alive(self) -> list[HostRow]:
        return [row for name, row in sorted(self.hosts.items()) if name not in self.expired]

    def with_changes(
        self,
        now: float,
        changes: int,
        expired: Iterable[str],
        hosts: Iterable[HostRow],
        shards: Iterable[ShardRow],
        loads: Mapping[str, Mapping[str, float]],
    ) -> View:
        """Return the view after the rows that changed, and with the loads that are told."""
        dead = frozenset(expired)
        known: Mapping[str, HostRow] = self.hosts
        changed = {row.name: row for row in hosts}
        loaded = {name: load for name, load in loads.items() if name in known or name in changed}
        if changed or loaded:
            table = {**known, **changed}
            table.update({name: msgspec.structs.replace(table[name], load=load) for name, load in loaded.items()})
            known = {name: row for name, row in table.items() if row.state != LEFT}
        moved = {row.name: row for row in shards}
        rows = {**self.shards, **moved} if moved else self.shards
        return View(now, self.lease_s, known, rows, dead & known.keys(), changes)

    def address_of(self, shard: str) -> str | None:
        """Return the address of the host that a shard is assigned to, if that one is alive."""
        row = self.shards.get(shard)
        return self.hosts[row.host].address if row is not None and self.is_alive(row.host) else None


class Directory(Protocol):
    """What a host asks of it. Calls block; a host makes them in a thread."""

    @property
    def secret(self) -> Secret: ...

    @property
    def location(self) -> str:
        """Return where it is, without a password."""
        ...

    @property
    def url(self) -> str:
        """Return the URL of the cluster, beside whose shards runs of programs have their journals; "" where none is."""
        ...

    @property
    def signer(self) -> Signer:
        """Return the key that signs what is the cluster's."""
        ...

    def join(self, host: HostRow) -> View:
        """Enter a host; Conflict while another one of that name is alive."""
        ...

    def renew(self, host: HostRow, known: View) -> View:
        """Keep a host's row alive, and return what it knows with all changes since; Conflict where the row is gone or
        another start's by now."""
        ...

    def view(self) -> View: ...

    def read_silences(self) -> dict[str, float]:
        """Return for how many seconds each host has not renewed its row."""
        ...

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
        """Return what a Kernel opens for a shard: a KeyedStore, or a Store."""
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

        self.url = url
        self._plain_url, named = split_schema(url)
        self.schema = named or "lyra"
        if not _SCHEMA.fullmatch(self.schema):
            raise ConfigError(
                f"schema is {self.schema!r}", hint="use lower-case letters, digits and underscores, at most 50"
            )
        self.location, self._hidden = describe_url(self._plain_url, self.schema)
        self._connection: Any = None
        self._entropy = Entropy()
        self._turn = Lock()  # the thread of a host that is held up renews its row beside the one that it asks in
        try:
            if make:
                self._make(shards, lease_s)
            row = self._read("SELECT secret, lease_s, key FROM cluster")
            if not row:
                raise self._make_lost_error()
        except BaseException:
            self.close()
            raise
        self.secret = Secret(row[0][0])
        self.lease_s = float(row[0][1])
        self.key = Secret(row[0][2])  # that signs what is the cluster's, whichever of its hosts and users writes it

    def _make_lost_error(self) -> StoreError:
        return StoreError(
            f"the directory in {self.location} has lost the row of its table `cluster`",
            hint="restore the schema from a backup: the stores of the shards are signed with the key in it",
        )

    # ------------------------------------------------------------------ making it

    def _make(self, shards: int | None, lease_s: float | None) -> None:
        if shards is not None and not 1 <= shards <= SHARDS_MAX:
            raise ConfigError(f"a cluster has 1 to {SHARDS_MAX} shards, not {shards}", key="shards")
        with self._transaction() as ask:
            ask("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            ask(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')  # words of SQL, such as `user`, are names, too
            self._raise_if_store(ask)
            for table in _TABLES:
                ask(table)
            ask(
                "INSERT INTO cluster SELECT 1, %s, %s, %s, 1 WHERE NOT EXISTS (SELECT 1 FROM shards)"
                " ON CONFLICT DO NOTHING",
                (Entropy().token(), random_key().hex(), 3.0 if lease_s is None else lease_s),
            )
            known = int(ask("SELECT coalesce(max(number), 0) FROM shards")[0][0])
            if known and shards not in (None, known):
                raise ConfigError(
                    f"the cluster in {self.location} has {known} shards, which never changes", key="shards"
                )
            count = known or shards or SHARDS
            if not known:
                self._raise_if_left_out(ask, count)
            for number in range(1, count + 1):
                values = (f"s{number}", number)
                ask("INSERT INTO shards VALUES (%s, %s, '', 0, 0, '', 1) ON CONFLICT DO NOTHING", values)

    def _raise_if_store(self, ask: Callable[..., list[tuple[Any, ...]]]) -> None:
        """Refuse a schema in which a kernel has worked that is no shard."""
        tables = ask("SELECT to_regclass(%s), to_regclass(%s)", (f"{self.schema}.cluster", f"{self.schema}.journal"))
        if tables[0][0] is None and tables[0][1] is not None and ask("SELECT 1 FROM journal LIMIT 1"):
            raise ConfigError(
                f"{self.location} has a store already, and no cluster",
                hint="make the cluster in another schema: ?schema=NAME behind its URL; lyra store move moves one",
            )

    def _raise_if_left_out(self, ask: Callable[..., list[tuple[Any, ...]]], count: int) -> None:
        """Refuse a cluster without the shard that a store was moved to before: no host would ever open it."""
        pattern = f"^{self.schema}_s([1-9][0-9]{{0,3}})$"
        numbers = ask(
            "SELECT substring(nspname FROM %s)::int FROM pg_namespace"
            " WHERE nspname ~ %s AND to_regclass(format('%%I.journal', nspname)) IS NOT NULL",
            (pattern, pattern),
        )
        last = max((int(number) for (number,) in numbers), default=0)
        if last > count:
            raise ConfigError(
                f"there is a store for shard s{last} in {self.location}, and the cluster would have {count} shards",
                hint=f"make it with at least so many: --shards {last}",
                key="shards",
            )

    def url_of(self, shard: str) -> str:
        """Return the URL of a shard's store."""
        sign = "&" if "?" in self._plain_url else "?"
        return f"{self._plain_url}{sign}schema={self.schema}_{shard}"

    def store_of(self, shard: str) -> KeyedStore:
        """Return a shard's store with the key of the cluster, which each host signs and checks it with: the key of the
        user of one host would be another one's on the next."""
        return KeyedStore(self.url_of(shard), self.signer)

    @property
    def signer(self) -> Signer:
        return Signer(bytes.fromhex(self.key.reveal()))

    # ------------------------------------------------------------------ hosts

    def join(self, host: HostRow) -> View:
        with self._transaction() as ask:
            held = ask(
                f"SELECT life, expires_at > {_NOW} AND state <> 'left' FROM hosts WHERE name = %s FOR UPDATE",  # noqa: S608 - a constant
                (host.name,),
            )
            if held and held[0][1] and held[0][0] != host.life:
                raise Conflict(
                    f"a host named {host.name!r} is in the cluster already",
                    hint="give this one another name with --name, or wait until that one's lease is over",
                    name=host.name,
                )
            ask("DELETE FROM hosts WHERE name = %s", (host.name,))
            # Rows of hosts that left long ago: the others have heard of it.
            ask(f"DELETE FROM hosts WHERE state = 'left' AND expires_at < {_NOW} - %s", (_LEFT_KEPT_S,))  # noqa: S608
            ask(_GIVE_UP, (_LEFT_KEPT_S,))
            tables = (_encode(host.resources), _encode(host.load))
            ask(
                _JOIN,
                (host.name, host.life, host.address, host.version, host.format, host.state, *tables, self.lease_s),
            )
        return self.view()

    def renew(self, host: HostRow, known: View) -> View:
        with self._transaction() as ask:
            kept = ask(
                f"UPDATE hosts SET expires_at = {_NOW} + %s, resources = %s, load = %s WHERE name = %s AND life = %s"  # noqa: S608
                " AND state <> 'left' RETURNING name",
                (self.lease_s, _encode(host.resources), _encode(host.load), host.name, host.life),
            )
        if not kept:
            raise Conflict(f"the row of host {host.name!r} is gone, or another start's by now", name=host.name)
        return self._look(known)

    def set_state(self, host: str, state: str) -> bool:
        return bool(self._read(_SET_STATE, (state, host, "", True)))

    def leave(self, host: HostRow) -> None:
        self._read(_SET_STATE, (LEFT, host.name, host.life, False))

    # ------------------------------------------------------------------ shards

    def view(self) -> View:
        return self._look(View(0.0, self.lease_s, {}, {}))

    def _look(self, known: View) -> View:
        """Return a view with all that changed since."""
        read = _read_numbers
        with self._transaction() as ask:
            cluster = ask(f"SELECT {_NOW}, changes FROM cluster")  # noqa: S608 - a constant
            if not cluster:
                raise self._make_lost_error()
            ((now, changes),) = cluster
            expired = [row[0] for row in ask(f"SELECT name FROM hosts WHERE expires_at <= {_NOW}")]  # noqa: S608
            hosts: list[tuple[Any, ...]] = []
            shards: list[tuple[Any, ...]] = []
            if changes != known.changes:
                hosts = ask(f"{_HOST} WHERE change > %s", (known.changes,))
                shards = ask(f"{_SHARD} WHERE change > %s ORDER BY number", (known.changes,))
            names = list(known.hosts)
            start = names[self._entropy.bits() % len(names)] if names else ""
            loads = ask("SELECT name, load FROM hosts WHERE name >= %s ORDER BY name LIMIT %s", (start, LOADS))
        rows = [HostRow(*row[:6], read(row[6]), read(row[7]), row[8]) for row in hosts]  # type: ignore[call-arg]
        loaded = {name: read(load) for name, load in loads}
        return known.with_changes(float(now), int(changes), expired, rows, [ShardRow(*row) for row in shards], loaded)

    def read_silences(self) -> dict[str, float]:
        rows = self._read(f"SELECT name, {_NOW} + %s - expires_at FROM hosts WHERE state <> 'left'", (self.lease_s,))  # noqa: S608
        return {name: max(0.0, float(silence_s)) for name, silence_s in rows}

    def assign(self, shard: str, host: str, moves: int) -> bool:
        return bool(self._read(_ASSIGN, (host, shard, moves)))

    def note(self, shard: str, note: str, format_number: int) -> None:
        self._read(_NOTE, (note, format_number, shard))

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
            # A host that is held in the middle of a change must not keep its locks from the others.
            self._connection.execute(f"SET idle_in_transaction_session_timeout = {_HELD_MS}")
        return self._connection

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._transaction() as ask:
            return ask(statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
        import psycopg

        from lyra.store.postgres import first_line

        with self._turn:
            try:
                connection = self._live()
                with connection.transaction():

                    def ask(statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
                        cursor = connection.execute(statement, values)
                        return list(cursor.fetchall()) if cursor.description is not None else []

                    yield ask
            except psycopg.Error as error:
                self.close()
                if getattr(error, "sqlstate", None) in ("42P01", "3F000"):
                    raise NoCluster(
                        f"there is no cluster in {self.location}", hint="lyra cluster start --store URL makes it"
                    ) from None
                raise StoreError(
                    f"the directory in {self.location} cannot be used: {first_line(error, self._hidden)}"
                ) from None


def _encode(numbers: Mapping[str, float]) -> str:
    return msgspec.json.encode(numbers).decode()


def _read_numbers(text: str) -> dict[str, float]:
    """Return numbers by name, as a host told them; none where the row was damaged: each beat writes it anew."""
    try:
        return msgspec.json.decode(text, type=dict[str, float])
    except msgspec.MsgspecError:
        return {}


class MemoryDirectory:
    """A directory in memory, for hosts of one process: tests and simulated worlds. `now` is its clock."""

    def __init__(
        self, shards: Sequence[str], now: Callable[[], float], *, lease_s: float = 3.0, stores: Mapping[str, Any] = {}
    ) -> None:
        self.secret = Secret("memory")
        self.location = "memory"
        self.url = ""
        self.lease_s = lease_s
        self._now = now
        self._hosts: dict[str, HostRow] = {}
        self._expires_at: dict[str, float] = {}
        self._shards = {name: ShardRow(name, number) for number, name in enumerate(shards, 1)}
        self._stores = stores
        self._changes = 1
        self._changed: dict[str, int] = {}  # row of a host or a shard → number of its last change, the oldest first
        for name in shards:
            self._change(f"shard {name}", 1)

    def _change(self, row: str, number: int | None = None) -> None:
        self._changes = self._changes + 1 if number is None else number
        self._changed.pop(row, None)
        self._changed[row] = self._changes

    @property
    def signer(self) -> Signer:
        return Signer(self.secret.reveal().encode())

    def join(self, host: HostRow) -> View:
        held = self._hosts.get(host.name)
        if (
            held is not None
            and held.state != LEFT
            and self._expires_at[host.name] > self._now()
            and held.life != host.life
        ):
            raise Conflict(f"a host named {host.name!r} is in the cluster already", name=host.name)
        now = self._now()
        self._hosts[host.name] = msgspec.structs.replace(host, since=now)
        self._expires_at[host.name] = now + self.lease_s
        self._change(f"host {host.name}")
        return self.view()

    def renew(self, host: HostRow, known: View) -> View:
        held = self._hosts.get(host.name)
        if held is None or held.life != host.life or held.state == LEFT:
            raise Conflict(f"the row of host {host.name!r} is gone, or another start's by now", name=host.name)
        self._hosts[host.name] = msgspec.structs.replace(held, load=host.load)
        self._expires_at[host.name] = self._now() + self.lease_s
        return self._look(known)

    def view(self) -> View:
        return self._look(View(0.0, self.lease_s, {}, {}))

    def read_silences(self) -> dict[str, float]:
        now = self._now()
        expires_at = {name: self._expires_at[name] for name, row in self._hosts.items() if row.state != LEFT}
        return {name: max(0.0, now + self.lease_s - until) for name, until in expires_at.items()}

    def _look(self, known: View) -> View:
        hosts, shards = [], []
        for row in reversed(self._changed):
            if self._changed[row] <= known.changes:
                break
            kind, _, name = row.partition(" ")
            if kind == "host":
                hosts.append(self._hosts[name])
            else:
                shards.append(self._shards[name])
        now = self._now()
        expired = [name for name, until in self._expires_at.items() if until <= now]
        loads = {name: self._hosts[name].load for name in list(self._hosts)[:LOADS]}
        return known.with_changes(now, self._changes, expired, hosts, reversed(shards), loads)

    def assign(self, shard: str, host: str, moves: int) -> bool:
        row = self._shards[shard]
        if row.moves != moves:
            return False
        self._shards[shard] = msgspec.structs.replace(row, host=host, moves=moves + 1)
        self._change(f"shard {shard}")
        return True

    def note(self, shard: str, note: str, format_number: int) -> None:
        row = self._shards[shard]
        self._shards[shard] = msgspec.structs.replace(row, note=note, format=max(row.format, format_number))
        self._change(f"shard {shard}")

    def set_state(self, host: str, state: str) -> bool:
        if host not in self._hosts or self._hosts[host].state == LEFT:
            return False
        self._hosts[host] = msgspec.structs.replace(self._hosts[host], state=state)
        self._change(f"host {host}")
        return True

    def leave(self, host: HostRow) -> None:
        held = self._hosts.get(host.name)
        if held is not None and held.life == host.life:
            self._hosts[host.name] = msgspec.structs.replace(held, state=LEFT)
            self._change(f"host {host.name}")

    def store_of(self, shard: str) -> Any:
        return self._stores[shard]

    def close(self) -> None:
        """There is nothing to close."""
