"""The time-outs of one model call: to connect, to the first piece of the answer, between two pieces, and in all."""

from __future__ import annotations

from typing import Any, ClassVar

from lyra.core.checking.check import FrozenSettings, real


class Timeouts(FrozenSettings, frozen=True):
    """Seconds; None is no limit."""

    WORD: ClassVar[str] = "timeouts"

    connect_s: float | None = 10.0
    first_s: float | None = 120.0
    idle_s: float | None = 60.0
    total_s: float | None = 600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                real(value, name, above=0.0)

    @classmethod
    def of(cls, value: Any) -> Timeouts:
        return value if isinstance(value, Timeouts) else cls.from_data(value)
