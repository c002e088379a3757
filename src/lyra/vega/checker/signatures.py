"""How functions of the library and settings read to a person: the reference pages and editors say the same."""

from __future__ import annotations

from typing import Final

from lyra.vega.stdlib.table import LibraryEntry

# How the checker's table of settings reads to a person.
_TAKES: Final = {
    "bool": "`true` or `false`",
    "text or texts": "a text, or a list of texts to fall back along",
    "texts": "a list of texts",
    "memory": "`none`, `conversation` or `window(n)`",
    "type": "a type: the answer is read and checked",
    "tools": "a list of tools, functions and imported names",
    "capabilities": "a list of capabilities, such as `fs::read`",
    "backoff": "`exponential(base, factor, max)`, `linear(step, max)` or `constant(pause)`",
    "block": "a block `{ … }`, see below",
    "duration or int": "a duration, or whole milliseconds",
    "money": "an amount of money",
    "duration": "a duration",
    "text": "a text",
}


def signature_text(name: str, row: LibraryEntry) -> str:
    """`split(s: str, separator: str) -> list`; a parameter with `?` may be left out."""
    parts = [
        f"{parameter}{'' if index < row.required else '?'}{'' if kind == 'any' else f': {kind}'}"
        for index, (parameter, kind) in enumerate(row.parameters)
    ]
    result = "" if row.result == "null" else f" -> {row.result}"
    return f"{name}({', '.join(parts)}){result}"


def takes_text(takes: str) -> str:
    """What a setting takes, from the word for it in the checker's tables."""
    text = _TAKES.get(takes)
    if text is not None:
        return text
    form, *words = takes.split(" ")
    if form == "word":
        return "one of " + ", ".join(f"`{word}`" for word in words)
    if form == "words":
        return "a list of " + ", ".join(f"`{word}`" for word in words)
    least = f", at least {words[0]}" if words else ""
    most = f", at most {words[1]}" if len(words) > 1 else ""
    return {"int": "a whole number", "number": "a number"}[form] + least + most
