"""HeldOutput: the terminal's output, of which several steps can be written in one go.

Printing above the prompt means: erase the live block, print, draw the block again. Written as one piece, no reader of
the terminal sees the step in between. Cursor positions are never asked for: their answers would come as keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

from lyra.sage.terminal.facts import size_of

__all__ = ["HeldOutput"]


class HeldOutput(Vt100_Output):
    def __init__(self, stdout: TextIO, term: str) -> None:
        def get_size() -> Size:
            columns, rows = size_of(stdout)
            return Size(rows=rows, columns=columns)

        super().__init__(stdout, get_size, term=term, enable_cpr=False, enable_bell=False)
        self._held = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Write nothing until the end of the block, then everything."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self.flush()

    def flush(self) -> None:
        if not self._held:
            super().flush()
