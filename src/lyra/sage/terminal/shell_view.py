"""A `!command` on the screen: its output as it comes, its last lines when there are many, and how it ended."""

from __future__ import annotations

from typing import Final

from lyra.sage.terminal.echo import note_lines
from lyra.sage.terminal.folds import Folds
from lyra.sage.terminal.paper import Sheet
from lyra.sage.terminal.text.safe_text import shown_lines
from lyra.sage.terminal.text.styled_lines import MARGIN, Line, clip, indented, wrap_text
from lyra.sage.terminal.user_command import UserCommand, UserCommandOutcome

_ROWS_MAX: Final = 200  # printed when it has ended; the rest is folded
_LIVE_ROWS: Final = 10
_LIVE_CHARS: Final = 4_000


class ShellView:
    """One command of the user."""

    def __init__(self, command: str, folder: str, sheet: Sheet, folds: Folds) -> None:
        self._command = UserCommand(command, folder)
        self._title = command
        self._sheet = sheet
        self._folds = folds
        self._last = ""

    async def run(self) -> UserCommandOutcome:
        outcome = await self._command.run(self._tell)
        width = self._sheet.width
        lines = shown_lines(outcome.output)
        printed: list[Line] = []
        if len(lines) > _ROWS_MAX:
            fold = self._folds.add(f"!{self._title}", outcome.output)
            printed += note_lines(f"… {len(lines) - _ROWS_MAX} lines before · /expand {fold.number}", width)
        for text in lines[-_ROWS_MAX:]:
            printed += indented([[("", row)] for row in wrap_text(text, width - MARGIN)], MARGIN)
        if outcome.exit_code:
            printed += note_lines(f"exit code {outcome.exit_code}", width, "failed")
        self._sheet.print("command", printed or note_lines("no output", width))
        return outcome

    async def stop(self) -> None:
        await self._command.stop()

    def _tell(self, piece: str) -> None:
        self._last = (self._last + piece)[-_LIVE_CHARS:]
        self._sheet.paper.changed()

    def live_lines(self, width: int, rows: int) -> list[Line]:
        lines: list[Line] = [[("faint", f"{' ' * MARGIN}{text}")] for text in shown_lines(self._last)]
        return [clip(line, width) for line in lines[-min(rows, _LIVE_ROWS) :]]
