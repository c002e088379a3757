"""The outline of one file: its symbols, and the names that it mentions.

Python is read by its own parser, other languages by tree-sitter where the grammar is installed, else by patterns; of
all other files only the name counts. A file that is not text, too long, or written by a program (lines without end) has
no outline. A parser that fails leaves the patterns, or nothing: no file can stop the map.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, NamedTuple

from lyra.sage.project.repo_map.grammar_outline import LANGUAGES, grammar_symbols
from lyra.sage.project.repo_map.symbol import PATTERN_LANGUAGES, SYMBOLS_MAX, MapSymbol, identifiers, pattern_symbols

FILE_BYTES_MAX: Final = 512 * 1024
_LINE_BYTES_MEAN_MAX: Final = 300  # longer lines on average are written by a program
_MANY_BYTES: Final = 20_000
_ENDINGS_OF: Final[dict[str, str]] = {
    "python": "py pyi",
    "javascript": "js mjs cjs jsx",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "c": "c h",
    "cpp": "cc cpp cxx hpp hh hxx cu",
    "ruby": "rb",
    "php": "php",
    "c_sharp": "cs",
    "kotlin": "kt kts",
    "swift": "swift",
    "scala": "scala",
    "lua": "lua",
    "shell": "sh bash",
    "elixir": "ex exs",
    "sql": "sql",
    "protobuf": "proto",
    "vega": "vega",
}
_LANGUAGE_OF: Final = {ending: name for name, endings in _ENDINGS_OF.items() for ending in endings.split()}
assert _ENDINGS_OF.keys() <= {*LANGUAGES, *PATTERN_LANGUAGES}


class FileOutline(NamedTuple):
    symbols: list[MapSymbol]
    mentions: set[str]


def language_of(path: str) -> str:
    """The language of a file by its name; "" for one whose content is not looked at."""
    return _LANGUAGE_OF.get(os.path.splitext(path)[1][1:].lower(), "")


def outline_of(path: str, data: bytes, *, parsers: bool = True) -> FileOutline:
    """What a file defines and mentions. Without `parsers` only patterns are used."""
    language = language_of(path)
    is_generated = len(data) > _MANY_BYTES and len(data) > _LINE_BYTES_MEAN_MAX * (data.count(b"\n") + 1)
    if not language or len(data) > FILE_BYTES_MAX or b"\0" in data or is_generated:
        return FileOutline([], set())
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return FileOutline(_symbols(language, text, data, parsers=parsers)[:SYMBOLS_MAX], identifiers(text))


def _symbols(language: str, text: str, data: bytes, *, parsers: bool) -> list[MapSymbol]:
    symbols: list[MapSymbol] | None = None
    if parsers and language == "python":
        from lyra.sage.project.repo_map.symbol import python_symbols

        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            symbols = python_symbols(text)
    elif parsers and language in LANGUAGES:
        symbols = grammar_symbols(language, data)
    return pattern_symbols(language, text) if symbols is None else symbols
