"""The time of one execution with effects: what its path used itself, and what is left for its acts.

A path measures its own work with this clock, which stands still while an act is under way. The door ends acts when the
whole execution has used its time, and logs that they failed. So a path that replays the log, and waits for nothing,
comes to the same end as the one that waited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ExecutionTime:
    """Called, it gives the seconds that were not spent in acts."""

    def __init__(self, time_s: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._deadline = monotonic() + time_s
        self._acts = 0  # that are under way
        self._since = 0.0  # when the first of them began
        self._waited_s = 0.0

    def __call__(self) -> float:
        now = self._since if self._acts else self._monotonic()
        return now - self._waited_s

    @property
    def left_s(self) -> float:
        """Seconds until the execution has used its time."""
        return self._deadline - self._monotonic()

    @contextmanager
    def act(self) -> Iterator[None]:
        """While an act is under way."""
        if not self._acts:
            self._since = self._monotonic()
        self._acts += 1
        try:
            yield
        finally:
            self._acts -= 1
            if not self._acts:
                self._waited_s += self._monotonic() - self._since
