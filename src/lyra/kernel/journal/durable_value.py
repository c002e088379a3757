"""Values that changing calls give, and that may be awaited: `await kernel.submit(…)` waits until the store has it.

The value is there at once and is the same either way. One that no store keeps, and a copy, is awaited at no cost.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

if TYPE_CHECKING:
    from lyra.kernel.journal.journal import Journal
    from lyra.kernel.kernel import Kernel

__all__ = ["Kept", "kept"]

T = TypeVar("T", bound="Kept")


class Kept:
    """Mixed into a Struct with `dict=True`: what it waits for is no field, and is not compared, copied or saved."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._durable().__await__()

    async def _durable(self) -> Self:
        row: tuple[Journal, int] | None = self.__dict__.get("_row")
        if row is not None:
            await row[0].acknowledged(row[1])
        return self


def kept(kernel: Kernel, value: T) -> T:
    """The same value; awaiting it waits for everything that is written so far."""
    if kernel.journal is not None:
        msgspec.structs.force_setattr(value, "_row", (kernel.journal, kernel.journal.seq))  # type: ignore[arg-type]
    return value
