"""Expressions: a Pratt parser over one table of binding powers.

`<-` and `<~` bind loosest and take a whole expression on their right, so `c <- "a" + b` sends the concatenation; then
`||`, `&&`, equality, order, sums, products, the prefixes `-` `!` `await`, and last calls, indices and fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.core.limits import VEGA_NESTING_MAX
from lyra.vega.syntax import ast
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


def parse_expression(cursor: Cursor, least: int = 0) -> ast.Expression:
    """Return an expression whose signs all bind tighter than `least`."""
    cursor.depth += 1
    if cursor.depth > VEGA_NESTING_MAX:
        cursor.too_deep()
    kinds, ends, i = cursor.kinds, cursor.ends, cursor.i
    offset, kind = cursor.starts[i], kinds[i]
    left: ast.Expression
    if kind == "name":
        if kinds[i + 1] == "::":
            left = _parse_path(cursor)
        else:
            left = ast.Name(cursor.values[i], at=offset, end=ends[i])
            cursor.i = i + 1
    elif kind in _LITERALS:
        left = ast.Literal(cursor.values[i], at=offset, end=ends[i])
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
            left = ast.Binary(kind, left, right, at=offset, end=ends[cursor.i - 1])
    cursor.depth -= 1
    return left


def _parse_path(cursor: Cursor) -> ast.Expression:
    offset, module = cursor.starts[cursor.i], cursor.values[cursor.i]
    cursor.i += 2
    name = cursor.any_word("a name after `::`")
    return ast.Path(module, name, at=offset, end=cursor.ends[cursor.i - 1])


# ---------------------------------------------------------------- behind a value


def _parse_postfix(cursor: Cursor, left: ast.Expression, kind: str, offset: int) -> ast.Expression:
    if kind == "(":
        arguments = parse_arguments(cursor)
        return ast.Call(left, arguments, at=offset, end=cursor.ends[cursor.i - 1])
    opened = cursor.starts[cursor.i]
    cursor.i += 1
    if kind == "[":
        index = parse_expression(cursor)
        cursor.close("]", opened, "after the index")
        return ast.Index(left, index, at=offset, end=cursor.ends[cursor.i - 1])
    if cursor.kinds[cursor.i] == ".":
        cursor.fail_here("there is no `..`", "all ints from 0 up to before 3: `list::range(0, 3)`")
    name = cursor.any_word("a name after `.`")
    if cursor.kinds[cursor.i] == "(":
        arguments = parse_arguments(cursor)
        return ast.MethodCall(left, name, arguments, at=offset, end=cursor.ends[cursor.i - 1])
    return ast.Field(left, name, at=offset, end=cursor.ends[cursor.i - 1])


def parse_arguments(cursor: Cursor) -> list[ast.Argument]:
    """`(a, name: b)`."""
    opened = cursor.starts[cursor.i]
    cursor.i += 1
    arguments: list[ast.Argument] = []
    while cursor.kinds[cursor.i] != ")":
        i, name = cursor.i, ""
        if cursor.kinds[i + 1] == ":" and (cursor.kinds[i] == "name" or cursor.kinds[i] in KEYWORDS):
            name = cursor.values[i]
            cursor.i += 2
        value = parse_expression(cursor)
        arguments.append(ast.Argument(value, name, at=cursor.starts[i], end=cursor.ends[cursor.i - 1]))
        if not cursor.take(","):
            break
    cursor.close(")", opened, "after the arguments")
    return arguments


def _parse_send(cursor: Cursor, target: ast.Expression, kind: str, offset: int) -> ast.Expression:
    cursor.i += 1
    message = parse_expression(cursor)
    limits: dict[str, ast.Expression] = {}
    while cursor.kinds[cursor.i] == "name" and (word := cursor.values[cursor.i]) in ("timeout", "budget"):
        if word in limits:
            cursor.fail_here(f"`{word}` is given twice")
        cursor.i += 1
        limits[word] = parse_expression(cursor, _SEND)
    return ast.Send(
        target,
        message,
        kind == "<~",
        limits.get("timeout"),
        limits.get("budget"),
        at=offset,
        end=cursor.ends[cursor.i - 1],
    )


# ---------------------------------------------------------------- beginnings


def _parse_parenthesised(cursor: Cursor) -> ast.Expression:
    opened = cursor.starts[cursor.i]
    cursor.i += 1
    if cursor.kinds[cursor.i] == ")":
        cursor.fail_here("there is nothing between `(` and `)`", "a function without arguments is `|| …`")
    inside = parse_expression(cursor)
    if cursor.kinds[cursor.i] == ",":
        cursor.fail_here("there are no tuples", "write a list: `[a, b]`")
    cursor.close(")", opened, "here")
    return inside


def _parse_constant(cursor: Cursor) -> ast.Expression:
    i = cursor.i
    cursor.i = i + 1
    return ast.Literal(CONSTANTS[cursor.kinds[i]], at=cursor.starts[i], end=cursor.ends[i])


def _parse_prefix(cursor: Cursor) -> ast.Expression:
    i, offset, sign = cursor.i, cursor.starts[cursor.i], cursor.kinds[cursor.i]
    cursor.i = i + 1
    if sign == "-" and cursor.kinds[i + 1] == "int" and cursor.values[i + 1] == INT_MAX + 1:
        cursor.i = i + 2
        return ast.Literal(-INT_MAX - 1, at=offset, end=cursor.ends[i + 1])
    operand = parse_expression(cursor, _PREFIX)
    if sign == "await":
        return ast.Await(operand, at=offset, end=cursor.ends[cursor.i - 1])
    return ast.Unary(sign, operand, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_list(cursor: Cursor) -> ast.Expression:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    items: list[ast.Expression] = []
    while cursor.kinds[cursor.i] != "]":
        items.append(parse_expression(cursor))
        if not cursor.take(","):
            break
    cursor.close("]", offset, "after the items of the list")
    return ast.ListLiteral(items, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_map(cursor: Cursor) -> ast.Expression:
    offset = cursor.open_brace("")
    entries: list[tuple[ast.Expression, ast.Expression]] = []
    while cursor.kinds[cursor.i] != "}":
        key = parse_expression(cursor)
        cursor.expect(":", "between key and value", 'a map is written `{"key": value}`')
        entries.append((key, parse_expression(cursor)))
        if not cursor.take(","):
            break
    if cursor.kinds[cursor.i] != "}":
        cursor.fail_expected("`,` or `}`", where="after an entry of the map")
    cursor.close_brace("after the map")
    return ast.MapLiteral(entries, at=offset, end=cursor.ends[cursor.i - 1])


def parse_parameters(cursor: Cursor, close: str) -> list[ast.Parameter]:
    """`x, y: int = 1` up to the closing sign, which is stepped over."""
    opened, parameters = cursor.starts[cursor.i - 1], []
    while cursor.kinds[cursor.i] != close:
        offset = cursor.starts[cursor.i]
        name = cursor.name("the name of a parameter")
        kind = parse_type(cursor) if cursor.take(":") else None
        default = parse_expression(cursor) if cursor.take("=") else None
        parameters.append(ast.Parameter(name, kind, default, at=offset, end=cursor.ends[cursor.i - 1]))
        if not cursor.take(","):
            break
    if close == ")":
        cursor.close(")", opened, "after the parameters")
    else:
        cursor.expect(close, "after the parameters")
    return parameters


def _parse_lambda(cursor: Cursor) -> ast.Expression:
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
        body = ast.Block([ast.Return(value, at=start, end=end)], at=start, end=end)
    return ast.Lambda(parameters, body, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_template(cursor: Cursor) -> ast.Expression:
    """Return a string with `${…}`: each holds tokens of its own."""
    i = cursor.i
    parts: list[str | ast.Expression] = []
    for part in cursor.values[i]:
        if isinstance(part, Tokens):
            parts.append(_parse_template_part(cursor, part))
        elif part:
            parts.append(part)
    cursor.i = i + 1
    return ast.Interpolation(parts, at=cursor.starts[i], end=cursor.ends[i])


def _parse_template_part(cursor: Cursor, tokens: Tokens) -> ast.Expression:
    outer = (cursor.kinds, cursor.values, cursor.starts, cursor.ends, cursor.i, cursor.braces, cursor.depth)
    cursor.enter(tokens)
    cursor.braces = []
    try:
        if cursor.kinds[0] == "end":
            cursor.fail(cursor.starts[0] - 2, cursor.ends[0] + 1, "there is nothing in this `${}`")
        value = parse_expression(cursor)
        if cursor.kinds[cursor.i] != "end":
            cursor.fail_expected("`}`", where="after the expression in the string")
    except Stop:  # the string's end is known, so only this part is lost
        value = ast.Literal(None, at=cursor.starts[0], end=cursor.ends[-1])
    cursor.kinds, cursor.values, cursor.starts, cursor.ends, cursor.i, cursor.braces, cursor.depth = outer
    return value


# ---------------------------------------------------------------- processes


def _parse_spawn(cursor: Cursor) -> ast.Expression:
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
            cursor.fail_expected("`by`", where="after `supervised`")
        cursor.i += 1
        start = cursor.open_brace("after `supervised by`")
        settings, places = parse_settings(cursor, "}")
        cursor.close_brace("after the settings")
        supervision = ast.Supervision(settings, places, at=start, end=cursor.ends[cursor.i - 1])
    return ast.Spawn(target, is_async, is_function, supervision, at=offset, end=cursor.ends[cursor.i - 1])


def parse_target(cursor: Cursor, what: str) -> ast.Expression:
    """Parse what is spawned: `Coder`, `team::Coder`, or `fn worker(x)`."""
    is_function = cursor.take("fn")
    offset, i = cursor.starts[cursor.i], cursor.i
    if cursor.kinds[i] != "name":
        cursor.fail_expected("the name of an agent, a supervisor or `fn name(…)`", where=f"after `{what}`")
    target: ast.Expression
    if cursor.kinds[i + 1] == "::":
        target = _parse_path(cursor)
    else:
        cursor.i = i + 1
        target = ast.Name(cursor.values[i], at=offset, end=cursor.ends[i])
    if is_function:
        if cursor.kinds[cursor.i] != "(":
            cursor.fail_expected("`(`", where="after the function's name")
        return ast.Call(target, parse_arguments(cursor), at=offset, end=cursor.ends[cursor.i - 1])
    if cursor.kinds[cursor.i] == "(":
        cursor.fail_here("an agent takes no arguments", f"to run a function: `{what} fn {cursor.values[i]}(…)`")
    return target


def parse_settings(cursor: Cursor, close: str) -> tuple[dict[str, ast.Expression], dict[str, int]]:
    """`name value name value …` up to the closing sign, which is left; also where each name stands."""
    settings: dict[str, ast.Expression] = {}
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


def _no_expression(cursor: Cursor) -> ast.Expression:
    kind, before = cursor.kinds[cursor.i], cursor.kinds[cursor.i - 1]
    if kind == "=" and before in ("+", "-", "*", "/", "%"):
        message, hint = f"there is no `{before}=`", f"write `x = x {before} …`"
        cursor.fail(cursor.starts[cursor.i - 1], cursor.ends[cursor.i], message, hint)
    hints = {
        "fn": "a function without a name is a lambda: `|x| …`",
        "=": "equality is `==`",
        "+": "there is no prefix `+`, and `++` is written `x = x + 1`",
        "*": "a power is `math::pow(x, y)`" if before == "*" else None,
        "if": "`if` is a statement; as a value use `match`",
        "}": None,
    }
    cursor.fail_expected("an expression", hint=hints.get(kind))


CONSTANTS: Final[dict[str, Any]] = {"null": None, "true": True, "false": False}

# The first token of an expression → its rule; names and literals are read in `parse_expression` itself.
EXPRESSIONS: Final[dict[str, Callable[[Cursor], ast.Expression]]] = {
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


# ---------------- Types as they are written: `int`, `list[str]`, `fn(int) -> str`, `{name: str}`


def parse_type(cursor: Cursor) -> ast.Type:
    cursor.depth += 1
    if cursor.depth > VEGA_NESTING_MAX:
        cursor.too_deep()
    offset, kind = cursor.starts[cursor.i], cursor.kinds[cursor.i]
    written = ast.Type("map", at=offset)
    if kind == "{":
        written.fields = _parse_record(cursor)
    elif kind == "fn":
        cursor.i += 1
        written = ast.Type("fn", _parse_signature(cursor), at=offset)
    elif kind in ("name", "null"):
        cursor.i += 1
        written = ast.Type(cursor.values[cursor.i - 1], at=offset)
        if cursor.kinds[cursor.i] == "[":
            written.parameters = _parse_inner_types(cursor, "[", "]")
    else:
        cursor.fail_expected("a type", hint="such as `int`, `str`, `list[str]`")
    written.end = cursor.ends[cursor.i - 1]
    cursor.depth -= 1
    return written


def _parse_inner_types(cursor: Cursor, opening: str, closing: str) -> list[ast.Type]:
    opened = cursor.starts[cursor.i]
    cursor.expect(opening)
    types: list[ast.Type] = []
    while cursor.kinds[cursor.i] != closing:
        types.append(parse_type(cursor))
        if not cursor.take(","):
            break
    cursor.close(closing, opened, "after the types")
    return types


def _parse_signature(cursor: Cursor) -> list[ast.Type]:
    """`fn(int) -> str`: the parameters, then the result; a plain `fn` says nothing of either."""
    if cursor.kinds[cursor.i] != "(":
        return []
    parameters = _parse_inner_types(cursor, "(", ")")
    end = cursor.ends[cursor.i - 1]
    result = parse_type(cursor) if cursor.take("->") else ast.Type("any", at=end, end=end)
    return [*parameters, result]


def _parse_record(cursor: Cursor) -> dict[str, ast.Type]:
    cursor.open_brace("")
    fields: dict[str, ast.Type] = {}
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
