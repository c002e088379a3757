"""Texts, numbers and words as the layout writes them: quoted only where they need to be.

What is no text (a number, true, null) stays as it is written. A text is plain where every reader of YAML, of version
1.1 or 1.2, would read the same text; else it is quoted. Texts with line breaks become blocks, folded blocks keep their
lines.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final

from lyra.vesper.format.tree import ScalarPart

WIDTH: Final = 120  # columns of a line; a longer flow collection is written as a block
_FOLD: Final = 100  # columns of a folded text
_KEY_MAX: Final = 1_000  # characters; YAML reads no longer ones without a question mark
_WORDS: Final = frozenset(
    {"~", "null", "true", "false", "yes", "no", "on", "off", ".nan", ".inf", "-.inf", "+.inf", "=", "<<"}
)
_OURS: Final = frozenset({"", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE"})
_NUMBER: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_LIKE_A_NUMBER: Final = re.compile(
    r"[-+]?(?:0[xob][0-9a-fA-F_]+|\.?[0-9][0-9_]*(?:[.:][0-9_:.]*)?(?:[eE][-+]?[0-9]+)?)\Z"
)
_VERSION: Final = re.compile(r"[0-9]+(?:\.[0-9]+){2,}\Z")
_INDICATORS: Final = frozenset("-?:,[]{}#&*!|>'\"%@`.=<")
_SAFE_START: Final = re.compile(r"<=? |\.[A-Za-z]|-[A-Za-z]|==? ")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def is_text(part: ScalarPart) -> bool:
    """Whether the file's reader takes it as a text, not as a number, a truth value or nothing."""
    return bool(part.style) or (part.value not in _OURS and _NUMBER.match(part.value) is None)


def flow_text(part: ScalarPart) -> str:
    """The scalar inside a flow collection, on one line."""
    if not is_text(part):
        return part.value or "null"
    return part.value if _is_plain(part.value) and _is_plain_in_flow(part.value) else _quoted(part.value)


def key_text(part: ScalarPart, *, in_flow: bool) -> str:
    """A key; one that is plain in the file stays so."""
    value = part.value
    allowed = _is_plain(value) or (not part.style and _is_plain_form(value) and len(value) < _KEY_MAX)
    return value if allowed and (not in_flow or _is_plain_in_flow(value)) else _quoted(value)


def block_text(part: ScalarPart, indent: int, used: int) -> tuple[str, list[str]]:
    """The scalar behind a key or a dash: the rest of that line, and the lines below. `used` is the columns before."""
    if not is_text(part):
        return part.value, []
    value = part.value
    if part.style == ">":
        rows = _folded_rows(part)
        if rows is not None:
            return _header(">", value), [" " * indent + row if row else "" for row in rows]
    if "\n" in value and _fits_literal(value):
        rows = value.removesuffix("\n").split("\n")
        return _header("|", value), [" " * indent + row if row else "" for row in rows]
    line = value if _is_plain(value) else _quoted(value)
    if "\n" in part.raw and used + len(line) > WIDTH and _can_fold(value):
        rows = textwrap.wrap(value, _FOLD - indent, break_long_words=False, break_on_hyphens=False)
        return ">-", [" " * indent + row for row in rows]
    return line, []


# ------------------------------------------------------------------ plain and quoted
def _is_plain(value: str) -> bool:
    """Whether the text needs no quotes in a block."""
    is_number = _LIKE_A_NUMBER.match(value) is not None and _VERSION.match(value) is None
    return value.lower() not in _WORDS and not is_number and _is_plain_form(value)


def _is_plain_form(value: str) -> bool:
    if not value or value != value.strip() or not _is_printable(value):
        return False
    if value[0] in _INDICATORS and _SAFE_START.match(value) is None:
        return False
    return ": " not in value and " #" not in value and not value.endswith(":")


def _is_plain_in_flow(value: str) -> bool:
    return not any(mark in value for mark in ",[]{}:?")


def _is_printable(value: str) -> bool:
    return all(char.isprintable() for char in value)


def _quoted(value: str) -> str:
    if _is_printable(value):
        if '"' not in value and "\\" not in value:
            return f'"{value}"'
        if "'" not in value:
            return f"'{value}'"
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# ------------------------------------------------------------------ blocks
def _header(mark: str, value: str) -> str:
    return mark if value.endswith("\n") else f"{mark}-"


def _fits_literal(value: str) -> bool:
    """Whether a literal block gives exactly this text, whatever stands below it."""
    rows = value.removesuffix("\n").split("\n")
    if not rows[0] or rows[0][0] in " \t" or not rows[-1]:
        return False
    return all(_is_printable(row.replace("\t", " ")) and (not row or bool(row.strip())) for row in rows)


def _folded_rows(part: ScalarPart) -> list[str] | None:
    """The lines of a folded block without their indentation; None where the block is more than plain paragraphs."""
    header, _, body = part.raw.partition("\n")
    if any(char.isdigit() for char in header.partition("#")[0]) or part.value.endswith("\n\n"):
        return None
    rows = [row if row.strip(" ") else "" for row in body.split("\n")]
    while rows and not rows[-1]:
        rows.pop()
    if not rows or not rows[0]:
        return None
    indent = len(rows[0]) - len(rows[0].lstrip(" "))
    rows = [row[indent:] for row in rows]
    is_clean = all(not row or (row[0] not in " \t" and _is_printable(row)) for row in rows)
    return rows if is_clean else None


def _can_fold(value: str) -> bool:
    words = value.split(" ")
    return "\n" not in value and all(words) and _is_printable(value)
