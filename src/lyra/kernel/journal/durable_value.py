"""Values that changing calls give, and that may be awaited: `await kernel.submit(…)` waits until the store has it.

The value is there at once and is the same either way. One that no store keeps, and a copy, is awaited at no cost.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

if TYPE_CHECKING:
    from lyra.kernel.base.core import AnyJournal, Core


T = TypeVar("T", bound="DurableValue")


class DurableValue:
    """Mixed into a Struct with `dict=True`: what it waits for is no field, and is not compared, copied or saved."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._durable().__await__()

    async def _durable(self) -> Self:
        row: tuple[AnyJournal, int] | None = self.__dict__.get("_row")
        if row is not None:
            await row[0].acknowledged(row[1])
        return self


def durable_value(core: Core[Any], value: T) -> T:
    """Return the value; awaiting it waits for everything that is written so far."""
    if core.journal is not None:
        msgspec.structs.force_setattr(value, "_row", (core.journal, core.journal.seq))  # type: ignore[arg-type]
    return value
