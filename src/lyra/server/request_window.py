"""How many requests each caller has made in the last minute; a bounded number of callers is remembered."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from lyra.core.limits import SERVER_CALLERS_KEPT

if TYPE_CHECKING:
    from lyra.core.clock import Clock


_MINUTE_S: Final = 60.0


class RequestWindow:
    """Requests of each caller in the last minute: those of this minute, and of the one before the part that counts."""

    __slots__ = ("_clock", "_counts", "_limit")

    def __init__(self, limit: int | None, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, int, int]] = OrderedDict()  # caller → (minute, before, now)

    @property
    def is_unlimited(self) -> bool:
        return self._limit is None

    def clear(self) -> None:
        """Forget all callers."""
        self._counts.clear()

    def wait_s(self, caller: str) -> float:
        """Seconds to wait where the next request would be one too many, else 0; counts nothing."""
        return self._admit(caller, count_one=False) if caller in self._counts else 0.0

    def admit(self, caller: str) -> float:
        """Count a request; seconds to wait where it is one too many, else 0."""
        return self._admit(caller, count_one=True)

    def _admit(self, caller: str, *, count_one: bool) -> float:
        if self._limit is None:
            return 0.0
        now_s = self._clock.monotonic()
        minute, into_s = int(now_s // _MINUTE_S), now_s % _MINUTE_S
        last, before, count = self._counts.pop(caller, (minute, 0, 0))
        if minute != last:
            before, count = (count if minute == last + 1 else 0), 0
        weighed = before * (1 - into_s / _MINUTE_S) + count
        if weighed + 1 > self._limit:
            self._counts[caller] = (minute, before, count)
            return _MINUTE_S - into_s if not before or count >= self._limit else max(1.0, _MINUTE_S / max(1, before))
        self._counts[caller] = (minute, before, count + count_one)
        if len(self._counts) > SERVER_CALLERS_KEPT:
            self._counts.popitem(last=False)
        return 0.0
