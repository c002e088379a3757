"""A text in its one layout, as the edits an editor makes: only the lines that change, so that the cursor stays put."""

from __future__ import annotations

from lyra.errors import SourceError
from lyra.vega.format.formatter import format_source


def formatted(text: str) -> list[tuple[int, int, str]]:
    """Edits as (from, to, new text): one at most. A text that cannot be read is left as it is, and so are its line
    ends."""
    ends = "\r\n" if "\r\n" in text else "\n"
    try:
        new = format_source(text.removeprefix("\ufeff").replace("\r\n", "\n")).replace("\n", ends)
    except SourceError:
        return []
    if text.startswith("\ufeff"):
        new = "\ufeff" + new
    if new == text:
        return []
    old_lines, new_lines = text.splitlines(keepends=True), new.splitlines(keepends=True)
    first = _common(old_lines, new_lines)
    last = _common(old_lines[first:][::-1], new_lines[first:][::-1])
    offset = sum(map(len, old_lines[:first]))
    end = len(text) - sum(map(len, old_lines[len(old_lines) - last :])) if last else len(text)
    return [(offset, end, "".join(new_lines[first : len(new_lines) - last]))]


def _common(old: list[str], other: list[str]) -> int:
    """How many lines at the beginning are equal."""
    count = 0
    for left, right in zip(old, other, strict=False):
        if left != right:
            break
        count += 1
    return count
