"""StatusLine: the text that a StatusLine hook prints, for a terminal to draw.

`refresh` runs the hooks at most every 300 ms and gives the last text in between; a run is bounded by one second, and a
hook that fails leaves the text as it was. Only the first line counts, escape sequences and invisible characters are
taken out, and a long line is cut: the program's output cannot draw on the terminal. Draws nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from lyra.agents.declaration.hooks import AgentHooks
from lyra.core.clock import Clock, SystemClock
from lyra.core.secrets.visible import without_invisible

_EVERY_S: Final = 0.3
_CHARS_MAX: Final = 200
# Control sequences (colours, the cursor), operating system commands (titles, links), and other escapes.
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|\x9b[0-?]*[ -/]*[@-~]?"
)


class StatusLine:
    """The status line of one terminal."""

    __slots__ = ("_began_s", "_clock", "_hooks", "_is_running", "text", "warnings")

    def __init__(self, hooks: AgentHooks, *, clock: Clock | None = None) -> None:
        self._hooks = hooks
        self._clock = clock or SystemClock()
        self._began_s: float | None = None
        self._is_running = False
        self.text = ""
        self.warnings: tuple[str, ...] = ()  # of the last run

    async def refresh(self, data: Mapping[str, Any]) -> str:
        """The text for these fields (`model`, `mode`, `cost_usd`, `context_tokens` and others); "" without a hook."""
        now_s = self._clock.monotonic()
        if self._is_running or (self._began_s is not None and now_s - self._began_s < _EVERY_S):
            return self.text
        if self._hooks.status_for("StatusLine", data) is None:
            self.text = ""
            return self.text
        self._began_s, self._is_running = now_s, True
        try:
            outcome = await self._hooks.run("StatusLine", data)
        finally:
            self._is_running = False
        self.warnings = outcome.warnings
        if not outcome.warnings:
            self.text = _one_line(outcome.context)
        return self.text


def _one_line(text: str) -> str:
    lines = without_invisible(_ESCAPES.sub("", text)).splitlines()
    return lines[0].replace("\t", " ").strip()[:_CHARS_MAX] if lines else ""
