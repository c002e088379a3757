"""Cuts a streamed Markdown text into blocks: a block is given out when the text shows that it is complete.

`feed` takes the next piece and returns the blocks that it completes; `tail` is what is not complete yet. A block is a
heading, a fenced piece of code, a list with all of its items, or lines up to a blank one. A block is complete when the
next one begins, so that no block is ever changed after it was given out. Knows nothing of screens.
"""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r"( *)(`{3,}|~{3,})(.*)")
_ITEM: Final = re.compile(r" *(?:[-*+]|\d{1,9}[.)])(?: |$)")
_HEADING: Final = re.compile(r" {0,3}#{1,6}(?: |$)")
_RULE: Final = re.compile(r" {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$")


class MarkdownStream:
    """The state between two pieces of a text."""

    __slots__ = ("_chars", "_fence", "_in_list", "_lines", "_rest")

    def __init__(self) -> None:
        self._rest = ""  # the last line, without its end
        self._lines: list[str] = []  # of the block that is open
        self._chars = 0  # of these lines
        self._fence = ""  # the mark that ends the code that is open
        self._in_list = False

    @property
    def tail(self) -> str:
        """The text of the block that is not complete."""
        return "\n".join([*self._lines, self._rest]) if self._rest else "\n".join(self._lines)

    @property
    def tail_chars(self) -> int:
        """About how many characters are not complete."""
        return self._chars + len(self._rest)

    @property
    def tail_is_code(self) -> bool:
        return bool(self._fence) and not self._in_list

    def feed(self, piece: str) -> list[str]:
        """Take the next piece; gives the blocks that are complete now."""
        *lines, self._rest = (self._rest + piece).split("\n")
        blocks: list[str] = []
        for line in lines:
            self._chars += len(line)
            self._take(line.rstrip("\r"), blocks)
        return blocks

    def finish(self) -> list[str]:
        """The end of the text: what is left is complete."""
        blocks: list[str] = []
        if self._rest:
            self._take(self._rest, blocks)
            self._rest = ""
        self._close(blocks)
        self._fence = ""
        return blocks

    def _take(self, line: str, blocks: list[str]) -> None:
        if self._fence:
            self._take_code(line, blocks)
        elif not line.strip():
            self._take_blank(blocks)
        else:
            self._take_text(line, blocks)

    def _take_code(self, line: str, blocks: list[str]) -> None:
        self._lines.append(line)
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = ""
            if not self._in_list:
                self._close(blocks)

    def _take_blank(self, blocks: list[str]) -> None:
        if self._in_list:
            self._lines.append("")  # the next line shows whether the list goes on
        else:
            self._close(blocks)

    def _take_text(self, line: str, blocks: list[str]) -> None:
        is_item = _ITEM.match(line) is not None and _RULE.fullmatch(line) is None
        if self._in_list and not is_item and not line.startswith("  ") and not self._lines[-1]:
            self._close(blocks)
        fence = _FENCE.match(line)
        if fence is not None and not (fence[2][0] == "`" and "`" in fence[3]):
            if not (self._in_list and len(fence[1]) >= 2):
                self._close(blocks)
            self._fence = fence[2]
            self._lines.append(line)
            return
        if _HEADING.match(line):
            self._close(blocks)
            blocks.append(line)
            return
        if is_item and not self._in_list:
            self._close(blocks)
            self._in_list = True
        self._lines.append(line)

    def _close(self, blocks: list[str]) -> None:
        text = "\n".join(self._lines).rstrip()
        if text.strip():
            blocks.append(text)
        self._lines = []
        self._chars = 0
        self._in_list = False
