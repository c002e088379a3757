"""What the checker knows of a value without running anything: its kind, and which kinds go together.

Types in Vega are optional, so the answer is often `any`, and `any` goes with everything. A kind is a word and, for
lists, maps and Results, the kinds inside. The operators are one table; money and durations are only ever put together
with their own, so a sum of `$1.00` and `5s` is found before it costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from lyra.core.budgets.money import Money
from lyra.core.checking.check import did_you_mean
from lyra.vega.stdlib.table import LibraryEntry
from lyra.vega.syntax.ast import Type
from lyra.vega.values.values import Duration


class ValueKind(NamedTuple):
    """`fields` are those of a map whose type says them: `{name: str, age: int}`."""

    name: str
    inner: tuple[ValueKind, ...] = ()
    fields: tuple[tuple[str, ValueKind], ...] = ()

    def __str__(self) -> str:
        if self.fields:
            return f"{{{', '.join(f'{name}: {kind}' for name, kind in self.fields)}}}"
        shown = "fn" if self.name == "function" else "Result" if self.name == "result" else self.name
        known = self.inner and any(kind.name != "any" for kind in self.inner)
        return f"{shown}[{', '.join(map(str, self.inner))}]" if known else shown


ANY: Final = ValueKind("any")
NULL: Final = ValueKind("null")
BOOL: Final = ValueKind("bool")
STR: Final = ValueKind("str")

# How a type may be written → the word for it. The capitals are how headings of the library write them.
TYPES: Final[dict[str, str]] = {
    **{word: word for word in ("any", "null", "bool", "int", "float", "str", "duration", "money", "list", "map")},
    **{word: word for word in ("process", "future", "stream", "response", "span", "builder", "result")},
    "fn": "function",
    "function": "function",
    "Result": "result",
    "Process": "process",
    "ProcessId": "process",
    "Future": "future",
    "Stream": "stream",
    "Response": "response",
    "Span": "span",
}

# What other languages call them.
FOREIGN: Final[dict[str, str]] = {
    "string": "str",
    "String": "str",
    "text": "str",
    "integer": "int",
    "i64": "int",
    "long": "int",
    "number": "float",
    "double": "float",
    "boolean": "bool",
    "array": "list",
    "vec": "list",
    "dict": "map",
    "object": "map",
    "void": "null",
    "nil": "null",
    "None": "null",
    "time": "duration",
    "usd": "money",
}

# What other languages call methods.
FOREIGN_METHODS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("length", "size", "count"), ("len",)),
    **dict.fromkeys(("append", "add", "push_back"), ("push", "add")),
    **dict.fromkeys(("includes", "contains_key", "exists"), ("has",)),
    **dict.fromkeys(("toUpperCase", "to_upper"), ("upper",)),
    **dict.fromkeys(("toLowerCase", "to_lower"), ("lower",)),
    **dict.fromkeys(("substring", "substr"), ("slice",)),
    **dict.fromkeys(("strip",), ("trim",)),
    **dict.fromkeys(("forEach", "for_each"), ("each",)),
    **dict.fromkeys(("indexOf",), ("index_of",)),
}

_INNER_MOST: Final = {"list": 1, "map": 2, "result": 2, "stream": 1, "future": 1}


def kind_from_word(word: str) -> ValueKind:
    """Return the kind a library table names."""
    return ValueKind(TYPES.get(word, "any"))


def kind_from_type(
    written: Type, agents: Collection[str], complain: Callable[[Type, str, str | None], None]
) -> ValueKind:
    """Return the kind a type in the source means; `agents` are types too: the processes they run in."""
    word = TYPES.get(written.name)
    inner = tuple(kind_from_type(part, agents, complain) for part in written.parameters)
    fields = tuple((name, kind_from_type(part, agents, complain)) for name, part in written.fields.items())
    if word is None:
        if written.name in agents:
            return ValueKind("process")
        near = FOREIGN.get(written.name) or did_you_mean(written.name, TYPES)
        complain(written, f"unknown type `{written.name}`", f"did you mean `{near}`?" if near else None)
        return ANY
    if word == "function":
        return ValueKind(word)
    most = _INNER_MOST.get(word, 0)
    if len(inner) > most:
        takes = f"takes at most {most} types" if most else "takes no types"
        complain(written, f"`{written.name}` {takes} in brackets", None)
        return ValueKind(word)
    if word == "map" and len(inner) == 1:
        inner = (STR, *inner)
    return ValueKind(word, inner, fields)


_LITERALS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Money: "money",
    Duration: "duration",
}


def kind_of_literal(value: Any) -> ValueKind:
    return ValueKind(_LITERALS.get(type(value), "any"))


# Which other kinds may stand where a kind is declared. Only inputs of imported nodes are decimals.
_ALSO_ACCEPTED: Final = {"float": ("int",), "decimal": ("int", "float", "str", "money")}


def accepts(wanted: ValueKind, given: ValueKind) -> bool:
    """Return whether a value of the given kind may stand where the wanted one is declared; null may stand anywhere."""
    if wanted.name == "any" or given.name in ("any", "null"):
        return True
    if wanted.name != given.name:
        return given.name in _ALSO_ACCEPTED.get(wanted.name, ())
    given_fields = dict(given.fields)
    if given_fields and not all(
        name in given_fields and accepts(kind, given_fields[name]) for name, kind in wanted.fields
    ):
        return False
    # A side that does not say what it holds accepts everything inside.
    return all(accepts(inner, other) for inner, other in zip(wanted.inner, given.inner, strict=False))


def an(kind: ValueKind) -> str:
    """`an int`, `a list[str]`, `null`, `money`: for sentences."""
    text = str(kind)
    if kind.name in ("null", "money", "any"):
        return text
    return f"an {text}" if text[0] in "aeiou" else f"a {text}"


_NUMBERS: Final = ("int", "float")
_ORDERED: Final = ("str", "money", "duration")


def kind_from_operator(sign: str, left: ValueKind, right: ValueKind) -> ValueKind | None:
    """Return the kind of `left sign right`; None if the operator does not join them."""
    if sign in ("==", "!="):
        return BOOL
    if sign in ("&&", "||"):
        return BOOL if {left.name, right.name} <= {"bool", "any"} else None
    if sign == "+" and "str" in (left.name, right.name):
        return STR
    if left.name == "any" or right.name == "any":
        return BOOL if sign in _COMPARISONS else ANY
    if left.name in _NUMBERS and right.name in _NUMBERS:
        return BOOL if sign in _COMPARISONS else ValueKind("int" if left.name == right.name == "int" else "float")
    return _RULES[sign](left, right)


def _compare(left: ValueKind, right: ValueKind) -> ValueKind | None:
    return BOOL if left.name == right.name and left.name in _ORDERED else None


def _add(left: ValueKind, right: ValueKind) -> ValueKind | None:
    if left.name == right.name and left.name in ("money", "duration", "list"):
        return left if left == right else ValueKind(left.name)
    return None


def _multiply(left: ValueKind, right: ValueKind) -> ValueKind | None:
    for amount, factor in ((left, right), (right, left)):
        if amount.name in ("money", "duration") and factor.name == "int":
            return amount
    return None


def _divide(_left: ValueKind, _right: ValueKind) -> ValueKind | None:
    return None  # numbers are handled in `kind_from_operator`, and no other kind can be divided


_COMPARISONS: Final = ("<", "<=", ">", ">=")
_RULES: Final[dict[str, Callable[[ValueKind, ValueKind], ValueKind | None]]] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    "+": _add,
    "-": lambda left, right: left if left.name == right.name and left.name in ("money", "duration") else None,
    "*": _multiply,
    "/": _divide,
    "%": _divide,
}


# How functions of the library and settings read to a person: the reference pages and editors say the same.

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
    """Describe what a setting takes, from the word for it in the checker's tables."""
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
