"""`match` and `receive`: their arms, the patterns in them, and the statements without a block that an arm may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.core.checking.check import did_you_mean
from lyra.core.limits import VEGA_NESTING_MAX
from lyra.vega.syntax import ast
from lyra.vega.syntax.cursor import Cursor
from lyra.vega.syntax.expressions import CONSTANTS, parse_expression
from lyra.vega.values.values import INT_MAX, Duration

VARIANTS: Final = ("Ok", "Err")
_JUMPS: Final = frozenset({"return", "throw", "break", "continue"})


def parse_match(cursor: Cursor) -> ast.Expression:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    subject = parse_expression(cursor)
    cursor.open_brace("after the value to match")
    arms: list[ast.Arm] = []
    while cursor.kinds[cursor.i] != "}":
        arms.append(_parse_arm(cursor, _parse_pattern(cursor)))
        if not _step_between_arms(cursor, arms[-1]):
            break
    cursor.close_brace("after the arms of `match`")
    return ast.Match(subject, arms, at=offset, end=cursor.ends[cursor.i - 1])


def parse_receive(cursor: Cursor) -> ast.Expression:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    cursor.open_brace("after `receive`")
    arms: list[ast.Arm] = []
    after: ast.Expression | None = None
    after_body: ast.Arm | None = None
    while cursor.kinds[cursor.i] != "}":
        if after_body is not None:
            cursor.fail_here("`after` is the last arm of `receive`", "put the patterns before it")
        start = cursor.starts[cursor.i]
        if cursor.is_word("after") and cursor.kinds[cursor.i + 1] != "=>":
            cursor.i += 1
            after = parse_expression(cursor)
            arm = after_body = _parse_arm(cursor, ast.Wildcard(at=start, end=cursor.ends[cursor.i - 1]))
        else:
            arm = _parse_arm(cursor, _parse_pattern(cursor))
            arms.append(arm)
        if not _step_between_arms(cursor, arm):
            break
    cursor.close_brace("after the arms of `receive`")
    return ast.Receive(arms, after, after_body, at=offset, end=cursor.ends[cursor.i - 1])


def _step_between_arms(cursor: Cursor, arm: ast.Arm) -> bool:
    """Step over the `,` between two arms; a block needs none."""
    if cursor.take(","):
        return True
    if cursor.kinds[cursor.i] == "}":
        return False
    if cursor.kinds[cursor.i] == ";":
        cursor.fail_here("an arm ends with `,`")
    if cursor.source.text[cursor.ends[cursor.i - 1] - 1] == "}" and not arm.is_value:
        return True
    end = cursor.ends[cursor.i - 1]
    if "\n" in cursor.source.text[end : cursor.starts[cursor.i]] and cursor.kinds[cursor.i] != "end":
        cursor.note(end, end, "missing `,` after this arm")
        return True
    return cursor.fail_expected("`,` or `}`", where="after an arm")


def _parse_arm(cursor: Cursor, pattern: ast.Pattern) -> ast.Arm:
    cursor.expect("=>", "after the pattern")
    start, kind = cursor.starts[cursor.i], cursor.kinds[cursor.i]
    if kind == "{" and not cursor.is_map():
        return ast.Arm(
            pattern, cursor.grammar.block(cursor, "of the arm"), False, at=pattern.at, end=cursor.ends[cursor.i - 1]
        )
    statement = parse_jump(cursor) if kind in _JUMPS else parse_simple(cursor)
    end = cursor.ends[cursor.i - 1]
    body = ast.Block([statement], at=start, end=end)
    return ast.Arm(pattern, body, isinstance(statement, ast.ExpressionStatement), at=pattern.at, end=end)


def _parse_pattern(cursor: Cursor) -> ast.Pattern:
    cursor.depth += 1
    if cursor.depth > VEGA_NESTING_MAX:
        cursor.too_deep()
    i, offset, kind = cursor.i, cursor.starts[cursor.i], cursor.kinds[cursor.i]
    pattern: ast.Pattern
    if kind == "name":
        pattern = _parse_named(cursor)
    elif kind == "[":
        pattern = _parse_items(cursor)
    elif kind in ("string", "int", "float", "money", "duration", "-"):
        pattern = ast.LiteralPattern(_literal_value(cursor), at=offset, end=cursor.ends[cursor.i - 1])
    elif kind in CONSTANTS:
        cursor.i = i + 1
        pattern = ast.LiteralPattern(CONSTANTS[kind], at=offset, end=cursor.ends[i])
    elif kind == "template":
        cursor.fail_here("a pattern's string has no `${…}` in it", "bind a name and compare it in the arm")
    else:
        cursor.fail_expected("a pattern", hint="a literal, a name, `_`, `Ok(p)`, `Err(p)` or `[p, q]`")
    if cursor.kinds[cursor.i] == "|":
        cursor.fail_here("an arm has one pattern", "write an arm for each")
    cursor.depth -= 1
    return pattern


def _parse_named(cursor: Cursor) -> ast.Pattern:
    i, offset, name = cursor.i, cursor.starts[cursor.i], cursor.values[cursor.i]
    cursor.i = i + 1
    if cursor.kinds[cursor.i] != "(":
        end = cursor.ends[i]
        return ast.Wildcard(at=offset, end=end) if name == "_" else ast.NamePattern(name, at=offset, end=end)
    if name not in VARIANTS:
        near = did_you_mean(name, VARIANTS)
        hint = f"did you mean `{near}`?" if near else "only `Ok(p)` and `Err(p)` have parts"
        cursor.fail(offset, cursor.ends[i], f"`{name}` is not a variant", hint)
    opened = cursor.starts[cursor.i]
    cursor.i += 1
    inner = _parse_pattern(cursor)
    cursor.take(",")
    cursor.close(")", opened, "after the pattern")
    return ast.VariantPattern(name, inner, at=offset, end=cursor.ends[cursor.i - 1])


def _parse_items(cursor: Cursor) -> ast.Pattern:
    offset = cursor.starts[cursor.i]
    cursor.i += 1
    items: list[ast.Pattern] = []
    while cursor.kinds[cursor.i] != "]":
        items.append(_parse_pattern(cursor))
        if not cursor.take(","):
            break
    cursor.close("]", offset, "after the patterns of the list")
    return ast.ListPattern(items, at=offset, end=cursor.ends[cursor.i - 1])


def _literal_value(cursor: Cursor) -> Any:
    """Return the value of a literal, with the sign that may stand before it."""
    is_negative = cursor.take("-")
    i = cursor.i
    if cursor.kinds[i] not in ("string", "int", "float", "money", "duration"):
        cursor.fail_expected("a number", where="after `-`")
    value = cursor.values[i]
    cursor.i = i + 1
    if cursor.kinds[i] == "int" and value > INT_MAX + is_negative:
        cursor.note(cursor.starts[i], cursor.ends[i], "this number is too large for a 64-bit int")
    if not is_negative:
        return value
    if isinstance(value, str):
        cursor.fail(cursor.starts[i - 1], cursor.ends[i - 1], "a string has no sign")
    return Duration(-value.nanoseconds) if isinstance(value, Duration) else -value


MATCHES: Final[dict[str, Callable[[Cursor], ast.Expression]]] = {"match": parse_match, "receive": parse_receive}


# Statements without a block, as an arm of `match` may hold them too: assignments, expressions and jumps.


def parse_simple(cursor: Cursor) -> ast.Statement:
    offset = cursor.starts[cursor.i]
    value = parse_expression(cursor)
    if cursor.kinds[cursor.i] != "=":
        return ast.ExpressionStatement(value, at=offset, end=cursor.ends[cursor.i - 1])
    if not isinstance(value, (ast.Name, ast.Index, ast.Field)):
        cursor.fail(value.at, value.end, "this cannot be assigned to", "a name, `list[i]`, `map[key]` or `value.field`")
    cursor.i += 1
    new = parse_expression(cursor)
    return ast.Assign(value, new, at=offset, end=cursor.ends[cursor.i - 1])


def parse_jump(cursor: Cursor) -> ast.Statement:
    offset, kind = cursor.starts[cursor.i], cursor.kinds[cursor.i]
    cursor.i += 1
    if kind == "break":
        return ast.Break(at=offset, end=cursor.ends[cursor.i - 1])
    if kind == "continue":
        return ast.Continue(at=offset, end=cursor.ends[cursor.i - 1])
    if kind == "return":
        bare = cursor.kinds[cursor.i] in (";", "}", ",", "end")
        value = None if bare else parse_expression(cursor)
        return ast.Return(value, at=offset, end=cursor.ends[cursor.i - 1])
    thrown = parse_expression(cursor)
    if isinstance(thrown, ast.Call) and isinstance(thrown.callee, ast.Name) and thrown.callee.name[:1].isupper():
        error, text = thrown.callee.name, thrown.arguments[0].value if thrown.arguments else None
    elif isinstance(thrown, ast.Name) and thrown.name[:1].isupper() and not thrown.name.isupper():
        error, text = thrown.name, None
    else:
        error, text = "", thrown
    if error and isinstance(thrown, ast.Call) and (len(thrown.arguments) > 1 or any(a.name for a in thrown.arguments)):
        cursor.note(thrown.at, thrown.end, "an error carries one text", f'write `throw {error}("text")`')
    return ast.Throw(text, error or "Error", at=offset, end=cursor.ends[cursor.i - 1])
