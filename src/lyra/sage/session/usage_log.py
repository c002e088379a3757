"""The UsageLog: what model calls of all sessions have used, one row for each day, session, turn, agent and model.

Owns `sessions/usage.db`. A call is added to its row as soon as it is over, in one transaction, so several processes
write at once and `kill -9` loses no call that was added. Money is in micro-dollars; calls without a known price are
counted apart (`unpriced_calls`), and a sum over such a call has no `cost_usd`. A day is one of the local calendar. A
removed session keeps its rows: the money stays spent. Never knows a limit: `lyra.sage.agent.figures` does.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self
from urllib.parse import quote

import msgspec

from lyra.core.budgets.money import Money
from lyra.core.checking.check import one_of
from lyra.core.own_files import add_own_path, has_no_room, make_folder
from lyra.errors import StoreError, StoreFull
from lyra.sage.session.record import sessions_folder

USAGE_FILE: Final = "usage.db"
VERSION: Final = 1
_BUSY_TIMEOUT_S: Final = 10.0
_SECONDS_OF_A_DAY: Final = 86_400
UsageGroup = Literal["day", "session", "turn", "agent", "model"]
GROUPS: Final[tuple[UsageGroup, ...]] = ("day", "session", "turn", "agent", "model")
_ADDED: Final = (
    "calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost_micro_usd",
    "unpriced_calls",
)
_KEY: Final = ("day", "session", "turn", "agent", "model")
_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS usage(
    day TEXT NOT NULL, session TEXT NOT NULL, turn INTEGER NOT NULL, agent TEXT NOT NULL, model TEXT NOT NULL,
    time REAL NOT NULL, {", ".join(f"{column} INTEGER NOT NULL" for column in _ADDED)},
    PRIMARY KEY({", ".join(_KEY)})
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS usage_by_session ON usage(session, turn);
PRAGMA user_version={VERSION};
"""
_ADD: Final = (
    f"INSERT INTO usage({', '.join((*_KEY, 'time', *_ADDED))}) VALUES({', '.join('?' * (len(_KEY) + 1 + len(_ADDED)))})"
    f" ON CONFLICT DO UPDATE SET time = excluded.time, "
    + ", ".join(f"{column} = {column} + excluded.{column}" for column in _ADDED)
)


class UsageCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call that is over. `input_tokens` has the cached ones in it. `cost_micro_usd`: None if not known."""

    session: str
    turn: int
    agent: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micro_usd: int | None = None


class UsageSum(NamedTuple):
    """The sum over some rows; `group` is what they have in common: a day, a session, an agent, a model or a turn."""

    group: str
    time: float  # of the last call
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_micro_usd: int
    unpriced_calls: int

    @property
    def cost_usd(self) -> float | None:
        """None where the price of a call is not known."""
        return None if self.unpriced_calls else self.cost_micro_usd / 1_000_000

    @property
    def cache_share(self) -> float:
        """The part of the input that was read from a provider's cache, from 0 to 1."""
        return min(1.0, self.cache_read_tokens / self.input_tokens) if self.input_tokens else 0.0


def local_day(time: float) -> str:
    """Return the day of the local calendar, as `2026-11-17`."""
    return datetime.fromtimestamp(time).astimezone().date().isoformat()


class UsageLog:
    """`root` is the folder of all sessions. The file is made with the first call that is added."""

    __slots__ = ("_connection", "_lock", "path")

    def __init__(self, root: Path | None = None) -> None:
        self.path = (root or sessions_folder()) / USAGE_FILE
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        add_own_path(self.path, is_store=True, opened=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def add(self, call: UsageCall, *, now: float) -> None:
        """Add a call to the row of its day, session, turn, agent and model."""
        cost = call.cost_micro_usd
        values = (
            *(local_day(now), call.session, call.turn, call.agent, call.model, now),
            *(1, call.input_tokens, call.output_tokens, call.cache_read_tokens, call.cache_write_tokens),
            *(cost or 0, int(cost is None)),
        )
        with self._using(create=True) as connection:
            assert connection is not None
            connection.execute(_ADD, values)

    def sums(
        self, by: UsageGroup, *, session: str = "", turn: int | None = None, days: int | None = None, now: float = 0.0
    ) -> list[UsageSum]:
        """Return the rows summed by one of their columns: of one session, of one turn, of the last `days` days up to
        `now`."""
        column = one_of(by, GROUPS, "by")
        conditions, values = ["1"], []
        if session:
            conditions.append("session = ?")
            values.append(session)
        if turn is not None:
            conditions.append("turn = ?")
            values.append(str(turn))
        if days is not None:
            conditions.append("day >= ?")
            values.append(local_day(now - (days - 1) * _SECONDS_OF_A_DAY))
        added = ", ".join(f"sum({name})" for name in _ADDED)
        query = (
            f"SELECT CAST({column} AS TEXT), max(time), {added} FROM usage"  # noqa: S608 - names of our own columns
            f" WHERE {' AND '.join(conditions)} GROUP BY {column} ORDER BY {column}"
        )
        with self._using() as connection:
            return [] if connection is None else [UsageSum(*row) for row in connection.execute(query, values)]

    def sum_cost(self, *, session: str = "", day: str = "") -> Money:
        """Return what a session has cost, or all sessions on a day; calls without a price count nothing."""
        column, value = ("session", session) if session else ("day", day)
        with self._using() as connection:
            if connection is None:
                return Money(0)
            query = f"SELECT coalesce(sum(cost_micro_usd), 0) FROM usage WHERE {column} = ?"  # noqa: S608
            ((total,),) = connection.execute(query, (value,)).fetchall()
            return Money(total)

    @contextlib.contextmanager
    def _using(self, *, create: bool = False) -> Iterator[sqlite3.Connection | None]:
        """Yield the open file; None where there is none yet and it is not made."""
        with self._lock:
            try:
                yield self._open(create=create)
            except (sqlite3.Error, OSError) as error:
                self.close()
                if has_no_room(error, self.path):
                    raise StoreFull(f"there is no room left for {self.path}", hint="free some space") from error
                raise StoreError(
                    f"the usage of sessions in {self.path} cannot be used: {error}",
                    hint="move the file away; a new one is made with the next call of a model",
                    place=str(self.path),
                ) from error

    def _open(self, *, create: bool) -> sqlite3.Connection | None:
        if self._connection is not None:
            return self._connection
        if not create and not os.path.lexists(self.path):
            return None
        if create:
            make_folder(self.path.parent, private=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA trusted_schema=OFF")
            ((version,),) = connection.execute("PRAGMA user_version").fetchall()
            if version > VERSION:
                raise StoreError(f"{self.path} was made by a newer Lyra", place=str(self.path))
            connection.execute("PRAGMA synchronous=NORMAL")
            if version < VERSION:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection
