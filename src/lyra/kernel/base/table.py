"""The table of processes, by pid.

Most are in it as they are. A layer above may run processes of its own that need nothing of the kernel yet: its Guests.
They count as processes. Looking one up, or iterating over the table, makes an ordinary process of it; `present` gives
the processes that are there without making any. Those that ended long ago are in the store alone: looking one up
brings it back, and iterating does not.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any, Protocol, TypeVar

from lyra.kernel.base.waiting import AnyProcess

P = TypeVar("P", bound=AnyProcess)
P_co = TypeVar("P_co", bound=AnyProcess, covariant=True)


class Guests(Protocol[P_co]):
    """Processes that a layer above runs by itself until a part of the kernel asks for one."""

    def __len__(self) -> int: ...

    def __contains__(self, pid: object) -> bool: ...

    def bring(self, pid: Any) -> P_co | None:
        """Make a Process of one, and put it in the table; None if it is not among them."""

    def bring_all(self) -> None: ...

    def bring_ended(self) -> None:
        """Bring processes that have ended into the table."""

    def states(self) -> Iterable[str]:
        """The state of each, for callers that only count."""

    def stop(self) -> None:
        """The kernel closes: forget them all."""


class Table(dict[str, P]):
    __slots__ = ("find_ended", "guests")

    def __init__(self) -> None:
        super().__init__()
        self.guests: list[Guests[P]] = []
        # Recovery: makes a process of one that ended long ago and is in the store alone. None without a store.
        self.find_ended: Callable[[str], P | None] | None = None

    def present(self) -> ValuesView[P]:
        """Those that need no bringing."""
        return super().values()

    def ended(self) -> list[P]:
        """Those that have ended."""
        for guests in self.guests:
            guests.bring_ended()
        return [process for process in super().values() if process.exit is not None]

    def states(self) -> Iterator[str]:
        """The state of each process; guests stay guests."""
        yield from [process.state for process in super().values()]
        for guests in self.guests:
            yield from guests.states()

    # ------------------------------------------------------------------ one

    def __missing__(self, pid: Any) -> P:
        process = self._brought(pid)
        if process is None:
            raise KeyError(pid)
        return process

    def get(self, pid: Any, default: Any = None) -> P | None:  # type: ignore[override]  # one way to call it
        process = super().get(pid)
        if process is None and (self.guests or self.find_ended is not None):
            process = self._brought(pid)
        return default if process is None else process

    def __contains__(self, pid: object) -> bool:
        if super().__contains__(pid) or (self.guests and any(pid in guests for guests in self.guests)):
            return True
        return self.find_ended is not None and type(pid) is str and self.find_ended(pid) is not None

    def _brought(self, pid: Any) -> P | None:
        for guests in self.guests:
            process = guests.bring(pid)
            if process is not None:
                return process
        return None if self.find_ended is None or type(pid) is not str else self.find_ended(pid)

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

    def values(self) -> ValuesView[P]:  # type: ignore[override]
        self._bring_all()
        return super().values()

    def items(self) -> ItemsView[str, P]:  # type: ignore[override]
        self._bring_all()
        return super().items()

    def _bring_all(self) -> None:
        for guests in self.guests:
            guests.bring_all()
