"""The table of processes, by pid.

Most are in it as they are. A layer above may run processes of its own that need nothing of the kernel yet: its Guests.
They count as processes, and whoever looks one up, or looks at all, finds it: then it becomes a Process like any other.
`present` are those that are one already.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any, Protocol

from lyra.kernel.process.process import Process

__all__ = ["Guests", "Table"]


class Guests(Protocol):
    """Processes that a layer above runs by itself until somebody asks for them."""

    def __len__(self) -> int: ...

    def __contains__(self, pid: object) -> bool: ...

    def bring(self, pid: Any) -> Process | None:
        """Make a Process of one, and put it in the table; None if it is not among them."""

    def bring_all(self) -> None: ...

    def bring_ended(self) -> None:
        """The same for those that have ended."""

    def states(self) -> Iterable[str]:
        """The state of each, for those who only count."""

    def stop(self) -> None:
        """The kernel closes: forget them all."""


class Table(dict[str, Process]):
    __slots__ = ("guests",)

    def __init__(self) -> None:
        super().__init__()
        self.guests: list[Guests] = []

    def present(self) -> ValuesView[Process]:
        """Those that need no bringing."""
        return super().values()

    def ended(self) -> list[Process]:
        """Those that have ended."""
        for guests in self.guests:
            guests.bring_ended()
        return [process for process in super().values() if process.exit is not None]

    def states(self) -> Iterator[str]:
        """The state of each process; nobody is brought."""
        yield from [process.state for process in super().values()]
        for guests in self.guests:
            yield from guests.states()

    # ------------------------------------------------------------------ one

    def __missing__(self, pid: Any) -> Process:
        found = self._brought(pid)
        if found is None:
            raise KeyError(pid)
        return found

    def get(self, pid: Any, default: Any = None) -> Process | None:  # type: ignore[override]  # one way to call it
        found = super().get(pid)
        if found is None and self.guests:
            found = self._brought(pid)
        return default if found is None else found

    def __contains__(self, pid: object) -> bool:
        return super().__contains__(pid) or (bool(self.guests) and any(pid in guests for guests in self.guests))

    def _brought(self, pid: Any) -> Process | None:
        for guests in self.guests:
            found = guests.bring(pid)
            if found is not None:
                return found
        return None

    # ------------------------------------------------------------------ all

    def __len__(self) -> int:
        return super().__len__() + sum(map(len, self.guests))

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[str]:
        self._bring_all()
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        self._bring_all()
        return super().keys()

    def values(self) -> ValuesView[Process]:  # type: ignore[override]
        self._bring_all()
        return super().values()

    def items(self) -> ItemsView[str, Process]:  # type: ignore[override]
        self._bring_all()
        return super().items()

    def _bring_all(self) -> None:
        for guests in self.guests:
            guests.bring_all()
