"""A Job: one Vega process at work: its fiber, the kernel's ctx, and what its open effects have to remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.kernel.links import Down
from lyra.vega.fiber import Fiber
from lyra.vega.runtime.convert import from_python
from lyra.vega.values import Process

if TYPE_CHECKING:
    import asyncio

    from lyra.core.budget import Budget
    from lyra.kernel.context import Context
    from lyra.vega.runtime.ahead import Flock
    from lyra.vega.runtime.world import World

__all__ = ["Job", "ended_because"]


class Job:
    """Most processes only ever have the first three: the rest is made when it is needed."""

    __slots__ = ("_state", "ctx", "fiber", "world")

    def __init__(self, world: World, ctx: Context, fiber: Fiber) -> None:
        self.world = world
        self.ctx = ctx
        self.fiber = fiber
        self._state: State | None = None

    @property
    def state(self) -> State:
        if self._state is None:
            self._state = State()
        return self._state

    @property
    def has_state(self) -> bool:
        return self._state is not None

    def take(self, message: Any) -> None:
        """Put what the kernel delivered into the fiber's mailbox; signals that programs do not see are dropped."""
        kind = type(message)
        if kind is tuple:
            self.fiber.deliver(message[0])
        elif kind is Down:
            self.fiber.deliver(["DOWN", Process(message.pid), message.message or message.reason])
        elif kind is list and len(message) == 2 and message[0] == "vega":
            self.fiber.deliver(self.world.read(message[1]))
        elif kind in _PLAIN:
            self.fiber.deliver(from_python(message))


class State:
    """What rarer effects need: the receive that waits and when it is over, open sessions, spans and groups."""

    __slots__ = ("_numbers", "ahead", "due", "groups", "mocked", "receiving", "sessions", "spans")

    def __init__(self) -> None:
        self._numbers = 0
        self.receiving = -1
        self.due = 0.0
        self.sessions: list[tuple[Budget, ...]] = []
        self.groups: dict[int, list[asyncio.Task[Any]]] = {}
        self.ahead: dict[int, Flock] = {}
        self.spans: list[Any] = []
        self.mocked: dict[str, list[str]] = {}  # streams of mocks: their words, last first

    def number(self) -> int:
        """The process's own count, so that a replay gives the same numbers."""
        self._numbers += 1
        return self._numbers


_PLAIN = frozenset({type(None), bool, int, float, str, list, dict})


def ended_because(reason: str, error: BaseException | None) -> str:
    """Why a process ended, as a DOWN message says it."""
    return reason if error is None else str(error)
