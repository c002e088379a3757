"""What `sage -p` writes beside JSON: the answer as text in one of three ways, and lines about tool calls on stderr.

batch       the answer, once it is complete
streaming   the answer as it comes
silent      nothing; the exit code says how it went
"""

from __future__ import annotations

import sys
from typing import Any, Final

from lyra.agents.session.events import AnyLine, ToolEndLine
from lyra.cli.commands.agent import LinePrinter
from lyra.cli.render import note, printable

_ABOUT_CHARS_MAX: Final = 100


class TextPrinter(LinePrinter):
    """The format `text` in one of the modes."""

    def __init__(self, mode: str) -> None:
        super().__init__("text")
        self._mode = mode
        self._written = ""  # the end of what stands on stdout

    async def say(self, line: AnyLine) -> None:
        if line["type"] == "notice":
            await super().say(line)  # words for the user, on stderr
        if self._mode != "streaming":
            return
        if line["type"] == "text_delta":
            await self._write(str(line["delta"]))
        elif line["type"] == "tool_start":  # the text after a call is another answer
            await self._write(self._line_end())
        elif line["type"] == "error" and line.get("code") == "restart":
            await self._write(self._line_end())
            note("note: the answer broke off and begins again")

    def answer(self, text: str) -> None:
        if self._mode == "batch" or (self._mode == "streaming" and not self._written):
            super().answer(text)  # where no piece has come, it is written whole
        elif self._mode == "streaming":
            sys.stdout.write(self._line_end())

    async def _write(self, text: str) -> None:
        if text:
            self._written = text[-1]
            await self.put(printable(text) if sys.stdout.isatty() else text)

    def _line_end(self) -> str:
        return "\n" if self._written and self._written != "\n" else ""


class ToolLines:
    """`--verbose`: one line on stderr for each tool call that has ended."""

    def __init__(self) -> None:
        self._about: dict[str, str] = {}  # by the id of the call

    def see(self, line: AnyLine) -> None:
        if line["type"] == "tool_start":
            self._about[line["id"]] = _about(line.get("arguments") or {})
        elif line["type"] == "tool_end":
            about = self._about.pop(line["id"], "")
            note(f"  {line['name']:<8}{about}  {_outcome(line)}")


class DeniedCalls:
    """One line on stderr before the answer: which tools were denied, and how to learn why. Without it an answer of a
    model that takes no notice of the denial would be all that a person sees."""

    def __init__(self) -> None:
        self._tools: dict[str, None] = {}  # in the order in which they were first denied

    def see(self, line: AnyLine) -> None:
        if line["type"] == "tool_end" and line.get("error_code") == "permission_denied":
            self._tools[str(line["name"])] = None
        elif line["type"] == "result" and self._tools:
            names = printable(", ".join(self._tools))
            note(f"note: calls were denied: {names}; -v tells why, --allowed-tools and --permission-mode allow more")
            self._tools.clear()


def _about(arguments: dict[str, Any]) -> str:
    """The first text of the arguments, which names what the call is about."""
    words = next((value for value in arguments.values() if isinstance(value, str)), "")
    text = " ".join(words.split())
    return text if len(text) <= _ABOUT_CHARS_MAX else f"{text[: _ABOUT_CHARS_MAX - 1]}…"


def _outcome(line: ToolEndLine) -> str:
    output = str(line.get("output") or "")
    if line["is_error"]:
        return f"failed: {output.strip().split(chr(10), 1)[0][:200]}"
    count = len(output.splitlines())
    return f"{count} line{'' if count == 1 else 's'}"
