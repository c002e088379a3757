"""Supervision as a declaration, and the window that counts restarts.

`Supervision` says what happens when a process crashes; `RestartWindow` answers "may it start again?" the
way Erlang/OTP does: a restart at time t counts while `now - t <= window_s`, and more than `max_restarts` of
them means no. The supervisor itself, links and monitors live in the kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from lyra.core.checking.check import FrozenSettings, one_of, real, whole
from lyra.core.policies.retry import Backoff

STRATEGIES: Final[dict[str, str]] = {
    "restart": "start the crashed process again",
    "restart_all": "stop all children of the supervisor and start them again",
    "rest_for_one": "stop the children started after the crashed one, and start it and them again",
    "stop": "do not start it again; tell the parent",
    "escalate": "the supervisor itself fails",
}
OTP: Final[dict[str, str]] = {"one_for_one": "restart", "one_for_all": "restart_all"}  # their names in Erlang/OTP


class Supervision(FrozenSettings, frozen=True):
    """`max_restarts` within `window_s` seconds: 0 none, -1 without limit."""

    WORD: ClassVar[str] = "supervision"

    strategy: str = "restart"
    max_restarts: int = 3
    window_s: float = 60.0
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        given: object = self.strategy  # user input: it may have any type
        self._put(
            strategy=OTP.get(word := one_of(given, (*STRATEGIES, *OTP), "strategy"), word),
            max_restarts=whole(self.max_restarts, "max_restarts", least=-1, most=1_000_000),
            window_s=real(self.window_s, "window_s"),
            backoff=None if self.backoff is None else Backoff.of(self.backoff),
        )

    @classmethod
    def of(cls, value: Any) -> Supervision:
        """A Supervision, the word of a strategy, a mapping, or None: the defaults."""
        if value is None:
            return cls()
        if isinstance(value, Supervision):
            return value
        return cls.from_data(value) if isinstance(value, Mapping) else cls(strategy=value)


class RestartWindow:
    """The times of the restarts that still count."""

    __slots__ = ("_times", "supervision")

    def __init__(self, supervision: Supervision, times: Iterable[float] = ()) -> None:
        self.supervision = supervision
        self._times = deque(times)

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(self._times)

    def record(self, now: float) -> bool:
        """Count one crash at `now`; True if the process may start again."""
        most = self.supervision.max_restarts
        if most < 0:
            return True
        while self._times and self._times[-1] > now:  # recorded before the clock was set back
            self._times.pop()
        while self._times and now - self._times[0] > self.supervision.window_s:
            self._times.popleft()
        self._times.append(now)
        allowed = len(self._times) <= most
        if not allowed:  # the newest max_restarts + 1 decide; older ones never matter again
            self._times.popleft()
        return allowed
