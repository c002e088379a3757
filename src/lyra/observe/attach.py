"""Writes the records of a kernel to a file for as long as the kernel is open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

from lyra.core.clock import Clock
from lyra.core.event import Event
from lyra.errors import ConfigError
from lyra.observe.writers import JsonLines, SqliteRecords

_DATABASE: Final = (".db", ".sqlite", ".sqlite3")
_LINES: Final = (".jsonl", ".ndjson", ".json")


class Observed(Protocol):
    """The part of a kernel that `observe` uses."""

    parts: dict[str, Any]
    clock: Clock

    def on_event(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]: ...


def observe(kernel: Observed, path: str | Path, *, kinds: Iterable[str] | None = None) -> JsonLines | SqliteRecords:
    """Write the records of this kernel's agents to a file, by its ending: `.jsonl` or `.db`; closed with the kernel.

    `kinds`, for JSON lines: Events of these kinds instead (see JsonLines).
    """
    suffix = Path(path).suffix.lower()
    records: JsonLines | SqliteRecords
    if suffix in _LINES:
        records = JsonLines(path, kinds=kinds, secrets=lambda: secrets_of(kernel))
    elif suffix in _DATABASE and kinds is None:
        records = SqliteRecords(path, secrets=lambda: secrets_of(kernel))
    else:
        raise ConfigError(
            f"records cannot be written to {str(path)!r}{' by kinds' if kinds is not None else ''}",
            hint="name a file that ends in .jsonl or .db",
        )
    stop = kernel.on_event(records, records.kinds)
    kernel.parts[f"observe:{path}"] = Attached(stop, records)
    return records


class Closed(Protocol):
    """Records that are closed with the kernel."""

    async def close(self) -> None: ...


class Attached:
    """A part of the kernel that ends with it: it stops listening, then closes the file."""

    __slots__ = ("_records", "_stop")

    def __init__(self, stop: Callable[[], None], records: Closed) -> None:
        self._stop = stop
        self._records = records

    async def close(self) -> None:
        self._stop()
        await self._records.close()


def secrets_of(kernel: Observed) -> Iterable[Any]:
    """Return the keys that the kernel's agents use, where it has any."""
    agents = kernel.parts.get("agents")
    secrets: Iterable[Any] = agents.client.secrets() if agents is not None else ()
    return secrets
