"""Expressions: a Pratt parser over one table of binding powers.

`<-` and `<~` bind loosest and take a whole expression on their right, so `c <- "a" + b` sends the concatenation; then
`||`, `&&`, equality, order, sums, products, the prefixes `-` `!` `await`, and last calls, indices and fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.core.limits import VEGA_NESTING_MAX
from lyra.vega.syntax.ast import (
    Argument,
    Await,
    Binary,
    Block,
    Call,
    Expression,
    Field,
    Index,
    Interpolation,
    Lambda,
    ListLiteral,
    Literal,
    MapLiteral,
    MethodCall,
    Name,
    Path,
    Return,
    Send,
    Spawn,
    Supervision,
    Unary,
)
from lyra.vega.syntax.cursor import Cursor, Stop
from lyra.vega.syntax.tokens import KEYWORDS, Tokens
from lyra.vega.values.values import INT_MAX

__all__ = ["Expressions"]

# How tightly each sign holds its two sides; a larger one holds first. Same power: from left to right.
POWERS: Final[dict[str, int]] = {
    "<-": 1, "<~": 1,
    "||": 2,
    "&&": 3,
    "==": 4, "!=": 4,
    "<": 5, "<=": 5, ">": 5, ">=": 5,
    "+": 6, "-": 6,
    "*": 7, "/": 7, "%": 7,
    "(": 9, "[": 9, ".": 9,
}  # fmt: skip
_SEND: Final = 1
_PREFIX: Final = 8
_POSTFIX: Final = 9
_LITERALS: Final = frozenset({"string", "int", "float", "money", "duration"})
_KEYS: Final = _LITERALS | {"name", "template", "true", "false", "null"}


class Expressions(Cursor):
    __slots__ = ()

    def expression(self, least: int = 0) -> Expression:
        """An expression whose signs all bind tighter than `least`."""
        self.depth += 1
        if self.depth > VEGA_NESTING_MAX:
            self.too_deep()
        kinds, ends, i = self.kinds, self.ends, self.i
        at, kind = self.starts[i], kinds[i]
        left: Expression
        if kind == "name":
            if kinds[i + 1] == "::":
                left = self._path()
            else:
                left = Name(self.values[i], at=at, end=ends[i])
                self.i = i + 1
        elif kind in _LITERALS:
            left = Literal(self.values[i], at=at, end=ends[i])
            self.i = i + 1
            if kind == "int" and left.value > INT_MAX:
                self.note(at, ends[i], "this number is too large for a 64-bit int", f"the largest is {INT_MAX}")
        else:
            left = PREFIXES.get(kind, _no_expression)(self)
        powers = POWERS
        postfixes = 0
        while (power := powers.get(kind := kinds[self.i], 0)) > least:
            if power == _POSTFIX:
                postfixes += 1
                if self.depth + postfixes > VEGA_NESTING_MAX:  # each is one level of the tree
                    self.too_deep()
                left = self._postfix(left, kind, at)
            elif power == _SEND:
                left = self._send(left, kind, at)
            else:
                self.i += 1
                right = self.expression(power)
                left = Binary(kind, left, right, at=at, end=ends[self.i - 1])
        self.depth -= 1
        return left

    def _path(self) -> Expression:
        at, module = self.starts[self.i], self.values[self.i]
        self.i += 2
        name = self.any_word("a name after `::`")
        return Path(module, name, at=at, end=self.ends[self.i - 1])

    # ---------------------------------------------------------------- behind a value

    def _postfix(self, left: Expression, kind: str, at: int) -> Expression:
        if kind == "(":
            arguments = self.arguments()
            return Call(left, arguments, at=at, end=self.ends[self.i - 1])
        opened = self.starts[self.i]
        self.i += 1
        if kind == "[":
            index = self.expression()
            self.close("]", opened, "after the index")
            return Index(left, index, at=at, end=self.ends[self.i - 1])
        if self.kinds[self.i] == ".":
            self.fail_here("there is no `..`", "all ints from 0 up to before 3: `list::range(0, 3)`")
        name = self.any_word("a name after `.`")
        if self.kinds[self.i] == "(":
            arguments = self.arguments()
            return MethodCall(left, name, arguments, at=at, end=self.ends[self.i - 1])
        return Field(left, name, at=at, end=self.ends[self.i - 1])

    def arguments(self) -> list[Argument]:
        """`(a, name: b)`."""
        opened = self.starts[self.i]
        self.i += 1
        found: list[Argument] = []
        while self.kinds[self.i] != ")":
            i, name = self.i, ""
            if self.kinds[i + 1] == ":" and (self.kinds[i] == "name" or self.kinds[i] in KEYWORDS):
                name = self.values[i]
                self.i += 2
            value = self.expression()
            found.append(Argument(value, name, at=self.starts[i], end=self.ends[self.i - 1]))
            if not self.take(","):
                break
        self.close(")", opened, "after the arguments")
        return found

    def _send(self, target: Expression, kind: str, at: int) -> Expression:
        self.i += 1
        message = self.expression()
        limits: dict[str, Expression] = {}
        while self.kinds[self.i] == "name" and (word := self.values[self.i]) in ("timeout", "budget"):
            if word in limits:
                self.fail_here(f"`{word}` is given twice")
            self.i += 1
            limits[word] = self.expression(_SEND)
        return Send(
            target,
            message,
            kind == "<~",
            limits.get("timeout"),
            limits.get("budget"),
            at=at,
            end=self.ends[self.i - 1],
        )

    # ---------------------------------------------------------------- beginnings

    def _parenthesised(self) -> Expression:
        opened = self.starts[self.i]
        self.i += 1
        if self.kinds[self.i] == ")":
            self.fail_here("there is nothing between `(` and `)`", "a function without arguments is `|| …`")
        inside = self.expression()
        if self.kinds[self.i] == ",":
            self.fail_here("there are no tuples", "write a list: `[a, b]`")
        self.close(")", opened, "here")
        return inside

    def _constant(self) -> Expression:
        i = self.i
        self.i = i + 1
        return Literal(CONSTANTS[self.kinds[i]], at=self.starts[i], end=self.ends[i])

    def _prefix(self) -> Expression:
        i, at, sign = self.i, self.starts[self.i], self.kinds[self.i]
        self.i = i + 1
        if sign == "-" and self.kinds[i + 1] == "int" and self.values[i + 1] == INT_MAX + 1:
            self.i = i + 2
            return Literal(-INT_MAX - 1, at=at, end=self.ends[i + 1])
        operand = self.expression(_PREFIX)
        if sign == "await":
            return Await(operand, at=at, end=self.ends[self.i - 1])
        return Unary(sign, operand, at=at, end=self.ends[self.i - 1])

    def _list(self) -> Expression:
        at = self.starts[self.i]
        self.i += 1
        items: list[Expression] = []
        while self.kinds[self.i] != "]":
            items.append(self.expression())
            if not self.take(","):
                break
        self.close("]", at, "after the items of the list")
        return ListLiteral(items, at=at, end=self.ends[self.i - 1])

    def _map(self) -> Expression:
        at = self.open_brace("")
        entries: list[tuple[Expression, Expression]] = []
        while self.kinds[self.i] != "}":
            key = self.expression()
            self.expect(":", "between key and value", 'a map is written `{"key": value}`')
            entries.append((key, self.expression()))
            if not self.take(","):
                break
        if self.kinds[self.i] != "}":
            self.expected("`,` or `}`", where="after an entry of the map")
        self.close_brace("after the map")
        return MapLiteral(entries, at=at, end=self.ends[self.i - 1])

    def is_map(self) -> bool:
        """Whether the `{` here, where a block could stand too, begins a map: a key and a `:` follow."""
        return self.kinds[self.i] == "{" and self.kinds[self.i + 1] in _KEYS and self.kinds[self.i + 2] == ":"

    def _lambda(self) -> Expression:
        at = self.starts[self.i]
        if self.take("||"):
            parameters = []
        else:
            self.i += 1
            parameters = self.parameters("|")
        if self.kinds[self.i] == "{" and not self.is_map():
            body = self.block("of the function")
        else:
            start = self.starts[self.i]
            value = self.expression()
            end = self.ends[self.i - 1]
            body = Block([Return(value, at=start, end=end)], at=start, end=end)
        return Lambda(parameters, body, at=at, end=self.ends[self.i - 1])

    def _template(self) -> Expression:
        """A string with `${…}`: each holds tokens of its own."""
        i = self.i
        parts: list[str | Expression] = []
        for part in self.values[i]:
            if isinstance(part, Tokens):
                parts.append(self._inside(part))
            elif part:
                parts.append(part)
        self.i = i + 1
        return Interpolation(parts, at=self.starts[i], end=self.ends[i])

    def _inside(self, tokens: Tokens) -> Expression:
        outer = (self.kinds, self.values, self.starts, self.ends, self.i, self.braces, self.depth)
        self.enter(tokens)
        self.braces = []
        try:
            if self.kinds[0] == "end":
                self.fail(self.starts[0] - 2, self.ends[0] + 1, "there is nothing in this `${}`")
            value = self.expression()
            if self.kinds[self.i] != "end":
                self.expected("`}`", where="after the expression in the string")
        except Stop:  # the string's end is known, so only this part is lost
            value = Literal(None, at=self.starts[0], end=self.ends[-1])
        self.kinds, self.values, self.starts, self.ends, self.i, self.braces, self.depth = outer
        return value

    # ---------------------------------------------------------------- processes

    def _spawn(self) -> Expression:
        at = self.starts[self.i]
        self.i += 1
        is_async = self.is_word("async") and self.kinds[self.i + 1] in ("name", "fn")
        self.i += is_async
        is_function = self.kinds[self.i] == "fn"
        target = self.target("spawn")
        supervision = None
        if self.is_word("supervised"):
            self.i += 1
            if not self.is_word("by"):
                self.expected("`by`", where="after `supervised`")
            self.i += 1
            start = self.open_brace("after `supervised by`")
            settings, places = self.settings("}")
            self.close_brace("after the settings")
            supervision = Supervision(settings, places, at=start, end=self.ends[self.i - 1])
        return Spawn(target, is_async, is_function, supervision, at=at, end=self.ends[self.i - 1])

    def target(self, what: str) -> Expression:
        """What is spawned: `Coder`, `team::Coder`, or `fn worker(x)`."""
        is_function = self.take("fn")
        at, i = self.starts[self.i], self.i
        if self.kinds[i] != "name":
            self.expected("the name of an agent, a supervisor or `fn name(…)`", where=f"after `{what}`")
        target: Expression
        if self.kinds[i + 1] == "::":
            target = self._path()
        else:
            self.i = i + 1
            target = Name(self.values[i], at=at, end=self.ends[i])
        if is_function:
            if self.kinds[self.i] != "(":
                self.expected("`(`", where="after the function's name")
            return Call(target, self.arguments(), at=at, end=self.ends[self.i - 1])
        if self.kinds[self.i] == "(":
            self.fail_here("an agent takes no arguments", f"to run a function: `{what} fn {self.values[i]}(…)`")
        return target

    def settings(self, close: str) -> tuple[dict[str, Expression], dict[str, int]]:
        """`name value name value …` up to the closing sign, which is left; also where each name stands."""
        settings: dict[str, Expression] = {}
        places: dict[str, int] = {}
        while self.kinds[self.i] != close and self.kinds[self.i] != "end":
            place = self.starts[self.i]
            name = self.any_word("the name of a setting")
            if name in settings:
                self.note(place, place + len(name), f"`{name}` is given twice")
            settings[name] = self.expression()
            places[name] = place
            while self.kinds[self.i] in (",", ";"):
                self.i += 1
        return settings, places


def _no_compound(sign: str) -> tuple[str, str]:
    return f"there is no `{sign}=`", f"write `x = x {sign} …`"


def _no_expression(parser: Any) -> Expression:
    kind, before = parser.kinds[parser.i], parser.kinds[parser.i - 1]
    if kind == "=" and before in ("+", "-", "*", "/", "%"):
        parser.fail(parser.starts[parser.i - 1], parser.ends[parser.i], *_no_compound(before))
    hints = {
        "fn": "a function without a name is a lambda: `|x| …`",
        "=": "equality is `==`",
        "+": "there is no prefix `+`, and `++` is written `x = x + 1`",
        "*": "a power is `math::pow(x, y)`" if before == "*" else None,
        "if": "`if` is a statement; as a value use `match`",
        "}": None,
    }
    parser.expected("an expression", hint=hints.get(kind))
    raise AssertionError("unreachable: `expected` raises")


CONSTANTS: Final[dict[str, Any]] = {"null": None, "true": True, "false": False}

PREFIXES: Final[dict[str, Callable[[Any], Expression]]] = {
    "(": Expressions._parenthesised,
    "[": Expressions._list,
    "{": Expressions._map,
    "|": Expressions._lambda,
    "||": Expressions._lambda,
    "-": Expressions._prefix,
    "!": Expressions._prefix,
    "await": Expressions._prefix,
    "spawn": Expressions._spawn,
    "template": Expressions._template,
    "null": Expressions._constant,
    "true": Expressions._constant,
    "false": Expressions._constant,
}
