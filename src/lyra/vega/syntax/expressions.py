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
    Parameter,
    Path,
    Return,
    Send,
    Spawn,
    Supervision,
    Type,
    Unary,
)
from lyra.vega.syntax.cursor import Cursor, Stop
from lyra.vega.syntax.lexer import KEYWORDS, Tokens
from lyra.vega.values.values import INT_MAX

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


def parse_expression(cursor: Cursor, least: int = 0) -> Expression:
    """An expression whose signs all bind tighter than `least`."""
    cursor.depth += 1
    if cursor.depth > VEGA_NESTING_MAX:
        cursor.too_deep()
    kinds, ends, i = cursor.kinds, cursor.ends, cursor.i
    offset, kind = cursor.starts[i], kinds[i]
    left: Expression
    if kind == "name":
        if kinds[i + 1] == "::":
            left = _parse_path(cursor)
        else:
            left = Name(cursor.values[i], at=offset, end=ends[i])
            cursor.i = i + 1
    elif kind in _LITERALS:
        left = Literal(cursor.values[i], at=offset, end=ends[i])
        cursor.i = i + 1
        if kind == "int" and left.value > INT_MAX:
            cursor.note(offset, ends[i], "this number is too large for a 64-bit int", f"the largest is {INT_MAX}")
    else:
        left = cursor.grammar.expressions.get(kind, _no_expression)(cursor)
    powers = POWERS
    postfixes = 0
    while (power := powers.get(kind := kinds[cursor.i], 0)) > least:
        if power == _POSTFIX:
            postfixes += 1
            if cursor.depth + postfixes > VEGA_NESTING_MAX:  # each is one level of the tree
                cursor.too_deep()
            left = _parse_postfix(cursor, left, kind, offset)
        elif power == _SEND:
            left = _parse_send(cursor, left, kind, offset)
        else:
            cursor.i += 1
            right = parse_expression(cursor, power)
            left = Binary(kind, left, right, at=offset, end=ends[cursor.i - 1])
    cursor.depth -= 1
    return left


def _parse_path(cursor: Cursor) -> Expression:
    offset, module = cursor.starts[cursor.i], cursor.values[cursor.i]
    cursor.i += 2
    name = cursor.any_word("a name after `::`")
    return Path(module, name, at=offset, end=cursor.ends[cursor.i - 1])


# ---------------------------------------------------------------- behind a value


def _parse_postfix(cursor: Cursor, left: Expression, kind: str, offset: int) -> Expression:
    if kind == "(":
        arguments = parse_arguments(cursor)
        return Call(left, arguments, at=offset, end=cursor.ends[cursor.i - 1])
    opened = cursor.starts[cursor.i]
    cursor.i += 1
    if kind == "[":
        index = parse_expression(cursor)
        cursor.close("]", opened, "after the index")
        return Index(left, index, at=offset, end=cursor.ends[cursor.i - 1])
    if cursor.kinds[cursor.i] == ".":
        cursor.fail_here("there is no `..`", "all ints from 0 up to before 3: `list::range(0, 3)`")
    name = cursor.any_word("a name after `.`")
    if cursor.kinds[cursor.i] == "(":
        arguments = parse_arguments(cursor)
        return MethodCall(left, name, arguments, at=offset, end=cursor.ends[cursor.i - 1])
    return Field(left, name, at=offset, end=cursor.ends[cursor.i - 1])


def parse_arguments(cursor: Cursor) -> list[Argument]:
    """`(a, name: b)`."""
    opened = cursor.starts[cursor.i]
    cursor.i += 1
    arguments: list[Argument] = []
    while cursor.kinds[cursor.i] != ")":
        i, name = cursor.i, ""
        if cursor.kinds[i + 1] == ":" and (cursor.kinds[i] == "name" or cursor.kinds[i] in KEYWORDS):
            name = cursor.values[i]
            cursor.i += 2
        value = parse_expression(cursor)
        arguments.append(Argument(value, name, at=cursor.starts[i], end=cursor.ends[cursor.i - 1]))
        if not cursor.take(","):
            break
    cursor.close(")", opened, "after the arguments")
    return arguments


def _parse_send(cursor: Cursor, target: Expression, kind: str, offset: int) -> Expression:
    cursor.i += 1
    message = parse_expression(cursor)
    limits: dict[str, Expression] = {}
    while cursor.kinds[cursor.i] == "name" and (word := cursor.values[cursor.i]) in ("timeout", "budget"):
        if word in limits:
            cursor.fail_here(f"`{word}` is given twice")
        cursor.i += 1
        limits[word] = parse_expression(cursor, _SEND)
    return Send(
        target,
        message,
        kind == "<~",
        limits.get("timeout"),
        limits.get("budget"),
        at=offset,
        end=cursor.ends[cursor.i - 1],
    )


# ---------------------------------------------------------------- beginnings


def _parse_parenthesised(cursor: Cursor) -> Expression:
    opened = cursor.starts[cursor.i]
    cursor.i += 1
    if cursor.kinds[cursor.i] == ")":
        cursor.fail_here("there is nothing between `(` and `)`", "a function without arguments is `|| …`")
    inside = parse_expression(cursor)
    if cursor.kinds[cursor.i] == ",":
        cursor.fail_here("there are no tuples", "write a list: `[a, b]`")
    cursor.close(")", opened, "here")
    return inside


def _parse_constant(cursor: Cursor) -> Expression:
    i = cursor.i
    cursor.i = i + 1
    return Literal(CONSTANTS[cursor.kinds[i]], at=cursor.starts[i], end=cursor.ends[i])


def _parse_prefix(cursor: Cursor) -> Expression:
    i, offset, sign = cursor.i, cursor.starts[cursor.i], cursor.kinds[cursor.i]
    cursor.i = i + 1
    if sign == "-" and cursor.kinds[i + 1] == "int" and cursor.values[i + 1] == INT_MAX + 1:
        cursor.i = i + 2
        return Literal(-INT_MAX - 1, at=offset, end=cursor.ends[i + 1])
    operand = parse_expression(cursor, _PREFIX)
    if sign == "await":
        return Await(operand, at=offset, end=cursor.ends[cursor.i - 1])
    return Unary(sign, operand, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_list(cursor: Cursor) -> Expression:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    items: list[Expression] = []
    while cursor.kinds[cursor.i] != "]":
        items.append(parse_expression(cursor))
        if not cursor.take(","):
            break
    cursor.close("]", offset, "after the items of the list")
    return ListLiteral(items, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_map(cursor: Cursor) -> Expression:
    offset = cursor.open_brace("")
    entries: list[tuple[Expression, Expression]] = []
    while cursor.kinds[cursor.i] != "}":
        key = parse_expression(cursor)
        cursor.expect(":", "between key and value", 'a map is written `{"key": value}`')
        entries.append((key, parse_expression(cursor)))
        if not cursor.take(","):
            break
    if cursor.kinds[cursor.i] != "}":
        cursor.expected("`,` or `}`", where="after an entry of the map")
    cursor.close_brace("after the map")
    return MapLiteral(entries, at=offset, end=cursor.ends[cursor.i - 1])


def parse_parameters(cursor: Cursor, close: str) -> list[Parameter]:
    """`x, y: int = 1` up to the closing sign, which is stepped over."""
    opened, parameters = cursor.starts[cursor.i - 1], []
    while cursor.kinds[cursor.i] != close:
        offset = cursor.starts[cursor.i]
        name = cursor.name("the name of a parameter")
        kind = parse_type(cursor) if cursor.take(":") else None
        default = parse_expression(cursor) if cursor.take("=") else None
        parameters.append(Parameter(name, kind, default, at=offset, end=cursor.ends[cursor.i - 1]))
        if not cursor.take(","):
            break
    if close == ")":
        cursor.close(")", opened, "after the parameters")
    else:
        cursor.expect(close, "after the parameters")
    return parameters


def _parse_lambda(cursor: Cursor) -> Expression:
    offset = cursor.starts[cursor.i]
    if cursor.take("||"):
        parameters = []
    else:
        cursor.i += 1
        parameters = parse_parameters(cursor, "|")
    if cursor.kinds[cursor.i] == "{" and not cursor.is_map():
        body = cursor.grammar.block(cursor, "of the function")
    else:
        start = cursor.starts[cursor.i]
        value = parse_expression(cursor)
        end = cursor.ends[cursor.i - 1]
        body = Block([Return(value, at=start, end=end)], at=start, end=end)
    return Lambda(parameters, body, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_template(cursor: Cursor) -> Expression:
    """A string with `${…}`: each holds tokens of its own."""
    i = cursor.i
    parts: list[str | Expression] = []
    for part in cursor.values[i]:
        if isinstance(part, Tokens):
            parts.append(_parse_template_part(cursor, part))
        elif part:
            parts.append(part)
    cursor.i = i + 1
    return Interpolation(parts, at=cursor.starts[i], end=cursor.ends[i])


def _parse_template_part(cursor: Cursor, tokens: Tokens) -> Expression:
    outer = (cursor.kinds, cursor.values, cursor.starts, cursor.ends, cursor.i, cursor.braces, cursor.depth)
    cursor.enter(tokens)
    cursor.braces = []
    try:
        if cursor.kinds[0] == "end":
            cursor.fail(cursor.starts[0] - 2, cursor.ends[0] + 1, "there is nothing in this `${}`")
        value = parse_expression(cursor)
        if cursor.kinds[cursor.i] != "end":
            cursor.expected("`}`", where="after the expression in the string")
    except Stop:  # the string's end is known, so only this part is lost
        value = Literal(None, at=cursor.starts[0], end=cursor.ends[-1])
    cursor.kinds, cursor.values, cursor.starts, cursor.ends, cursor.i, cursor.braces, cursor.depth = outer
    return value


# ---------------------------------------------------------------- processes


def _parse_spawn(cursor: Cursor) -> Expression:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    is_async = cursor.is_word("async") and cursor.kinds[cursor.i + 1] in ("name", "fn")
    cursor.i += is_async
    is_function = cursor.kinds[cursor.i] == "fn"
    target = parse_target(cursor, "spawn")
    supervision = None
    if cursor.is_word("supervised"):
        cursor.i += 1
        if not cursor.is_word("by"):
            cursor.expected("`by`", where="after `supervised`")
        cursor.i += 1
        start = cursor.open_brace("after `supervised by`")
        settings, places = parse_settings(cursor, "}")
        cursor.close_brace("after the settings")
        supervision = Supervision(settings, places, at=start, end=cursor.ends[cursor.i - 1])
    return Spawn(target, is_async, is_function, supervision, at=offset, end=cursor.ends[cursor.i - 1])


def parse_target(cursor: Cursor, what: str) -> Expression:
    """What is spawned: `Coder`, `team::Coder`, or `fn worker(x)`."""
    is_function = cursor.take("fn")
    offset, i = cursor.starts[cursor.i], cursor.i
    if cursor.kinds[i] != "name":
        cursor.expected("the name of an agent, a supervisor or `fn name(…)`", where=f"after `{what}`")
    target: Expression
    if cursor.kinds[i + 1] == "::":
        target = _parse_path(cursor)
    else:
        cursor.i = i + 1
        target = Name(cursor.values[i], at=offset, end=cursor.ends[i])
    if is_function:
        if cursor.kinds[cursor.i] != "(":
            cursor.expected("`(`", where="after the function's name")
        return Call(target, parse_arguments(cursor), at=offset, end=cursor.ends[cursor.i - 1])
    if cursor.kinds[cursor.i] == "(":
        cursor.fail_here("an agent takes no arguments", f"to run a function: `{what} fn {cursor.values[i]}(…)`")
    return target


def parse_settings(cursor: Cursor, close: str) -> tuple[dict[str, Expression], dict[str, int]]:
    """`name value name value …` up to the closing sign, which is left; also where each name stands."""
    settings: dict[str, Expression] = {}
    places: dict[str, int] = {}
    while cursor.kinds[cursor.i] != close and cursor.kinds[cursor.i] != "end":
        place = cursor.starts[cursor.i]
        name = cursor.any_word("the name of a setting")
        if name in settings:
            cursor.note(place, place + len(name), f"`{name}` is given twice")
        settings[name] = parse_expression(cursor)
        places[name] = place
        while cursor.kinds[cursor.i] in (",", ";"):
            cursor.i += 1
    return settings, places


def _no_compound(sign: str) -> tuple[str, str]:
    return f"there is no `{sign}=`", f"write `x = x {sign} …`"


def _no_expression(cursor: Cursor) -> Expression:
    kind, before = cursor.kinds[cursor.i], cursor.kinds[cursor.i - 1]
    if kind == "=" and before in ("+", "-", "*", "/", "%"):
        cursor.fail(cursor.starts[cursor.i - 1], cursor.ends[cursor.i], *_no_compound(before))
    hints = {
        "fn": "a function without a name is a lambda: `|x| …`",
        "=": "equality is `==`",
        "+": "there is no prefix `+`, and `++` is written `x = x + 1`",
        "*": "a power is `math::pow(x, y)`" if before == "*" else None,
        "if": "`if` is a statement; as a value use `match`",
        "}": None,
    }
    cursor.expected("an expression", hint=hints.get(kind))


CONSTANTS: Final[dict[str, Any]] = {"null": None, "true": True, "false": False}

# The first token of an expression → its rule; names and literals are read in `parse_expression` itself.
EXPRESSIONS: Final[dict[str, Callable[[Cursor], Expression]]] = {
    "(": _parse_parenthesised,
    "[": _parse_list,
    "{": _parse_map,
    "|": _parse_lambda,
    "||": _parse_lambda,
    "-": _parse_prefix,
    "!": _parse_prefix,
    "await": _parse_prefix,
    "spawn": _parse_spawn,
    "template": _parse_template,
    "null": _parse_constant,
    "true": _parse_constant,
    "false": _parse_constant,
}


# ---------------------------------------------------------------- types
# Types as they are written: `int`, `list[str]`, `fn(int) -> str`, `{name: str}`.


def parse_type(cursor: Cursor) -> Type:
    cursor.depth += 1
    if cursor.depth > VEGA_NESTING_MAX:
        cursor.too_deep()
    offset, kind = cursor.starts[cursor.i], cursor.kinds[cursor.i]
    written = Type("map", at=offset)
    if kind == "{":
        written.fields = _parse_record(cursor)
    elif kind == "fn":
        cursor.i += 1
        written = Type("fn", _parse_signature(cursor), at=offset)
    elif kind in ("name", "null"):
        cursor.i += 1
        written = Type(cursor.values[cursor.i - 1], at=offset)
        if cursor.kinds[cursor.i] == "[":
            written.parameters = _parse_inner_types(cursor, "[", "]")
    else:
        cursor.expected("a type", hint="such as `int`, `str`, `list[str]`")
    written.end = cursor.ends[cursor.i - 1]
    cursor.depth -= 1
    return written


def _parse_inner_types(cursor: Cursor, opening: str, closing: str) -> list[Type]:
    opened = cursor.starts[cursor.i]
    cursor.expect(opening)
    types: list[Type] = []
    while cursor.kinds[cursor.i] != closing:
        types.append(parse_type(cursor))
        if not cursor.take(","):
            break
    cursor.close(closing, opened, "after the types")
    return types


def _parse_signature(cursor: Cursor) -> list[Type]:
    """`fn(int) -> str`: the parameters, then the result; a plain `fn` says nothing of either."""
    if cursor.kinds[cursor.i] != "(":
        return []
    parameters = _parse_inner_types(cursor, "(", ")")
    end = cursor.ends[cursor.i - 1]
    result = parse_type(cursor) if cursor.take("->") else Type("any", at=end, end=end)
    return [*parameters, result]


def _parse_record(cursor: Cursor) -> dict[str, Type]:
    cursor.open_brace("")
    fields: dict[str, Type] = {}
    while cursor.kinds[cursor.i] != "}":
        place = cursor.starts[cursor.i]
        name = cursor.any_word("the name of a field")
        if name in fields:
            cursor.note(place, cursor.ends[cursor.i - 1], f"`{name}` is given twice")
        cursor.expect(":", "after the field's name")
        fields[name] = parse_type(cursor)
        if not cursor.take(","):
            break
    cursor.close_brace("after the fields")
    return fields
