"""CollectorPause: Python's garbage collector rests while a session is opened.

Most objects of a start are modules, classes and functions. They live as long as the process, and the collector would
look through all of them several times. `end` takes them out of its sight and lets it work again.
"""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Self


class CollectorPause:
    """From the start of the block to `end`, or to the end of the block. A collector that was off stays off."""

    def __init__(self) -> None:
        self._was_enabled = False

    def __enter__(self) -> Self:
        self._was_enabled = gc.isenabled()
        gc.disable()
        return self

    def end(self) -> None:
        """The session is open: collect what comes from now on."""
        if self._was_enabled and not gc.isenabled():
            gc.freeze()
            gc.enable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._was_enabled:
            gc.unfreeze()
            gc.enable()
