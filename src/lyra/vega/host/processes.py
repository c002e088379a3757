"""The processes of LocalHost and the calls of its `parallel` blocks, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lyra.vega.machine.fiber import Fiber
from lyra.vega.values.values import ErrorValue, Money


class HostProcess:
    """A process of LocalHost. `agent` is [name, settings] of one that a model would answer for."""

    def __init__(self, pid: str, fiber: Fiber | None) -> None:
        self.pid = pid
        self.fiber = fiber
        self.agent: tuple[str, dict[str, Any]] | None = None
        self.is_alive = True
        self.reason = ""
        self.waits: str = ""  # what for: "", "receive", "sleep", "join"
        self.wait_number = 0  # a timer that was set for another wait means nothing
        self.receive = (-1, 0)  # the receive that waits, and the number of its timer
        self.links: set[str] = set()
        self.watchers: list[str] = []
        self.budgets: list[list[Money]] = []
        self.restart: tuple[Any, list[Any], dict[str, Any]] | None = None
        self.restarts: list[int] = []
        self.on_end: Callable[[Any, ErrorValue | None], None] | None = None


class ParallelCalls:
    """The calls of one `parallel`: results and errors in the order of the source."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.errors: list[ErrorValue | None] = []
        self.left = 0
        self.waiter: HostProcess | None = None
