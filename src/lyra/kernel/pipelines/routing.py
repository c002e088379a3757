"""Routing of pipelines: rules and expressions, as pure functions of the facts of a session.

A rule is `{"condition": key, "value": v, "target": stage}` (the last output has that key, and it equals that value) or
`{"expr": {…}, "target": stage}`. An expression is a mapping with an `op` of `OPS`; a comparison names a `field` by its
`scope` (`SCOPES`). A missing field makes every comparison false, `neq` too, and so does a number compared with a value
that is none. Nothing here raises while it decides: `expression_problems` finds every mistake before a pipeline starts.
Next: `declaration` and `session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from lyra.core.checking.check import did_you_mean
from lyra.core.checking.schema import same
from lyra.core.limits import PIPELINE_EXPRESSION_DEPTH_MAX

Path = tuple[str | int, ...]


class Problem(NamedTuple):
    """One mistake in a declaration: its path, what is wrong, and a hint."""

    path: Path
    message: str
    hint: str | None = None


class Facts(NamedTuple):
    """Everything that a rule may read."""

    current: Mapping[str, Any]  # the output of the stage that just ended
    outputs: Mapping[str, Mapping[str, Any]]  # of each stage, by stage name, agent name and output_key
    meta: Mapping[str, Any]  # the envelope's metadata
    interrupt: Mapping[str, Any]  # the answer to the last question
    state: Mapping[str, Any]  # what the pipeline's state_schema gathers


SCOPES: Final[dict[str, str]] = {
    "current": "the output of the stage that just ended",
    "agent": "the output of the stage named by `agent`: by its name, its agent's or its output_key",
    "meta": "the envelope's metadata",
    "interrupt": "the answer to the last interrupt: text, approved, decision, data",
    "state": "the pipeline's state, as state_schema merges it",
}

OPS: Final[dict[str, str]] = {
    "eq": "the field equals value",
    "neq": "the field is there and does not equal value",
    "gt": "the field is a number above value",
    "lt": "the field is a number below value",
    "gte": "the field is a number, value or above",
    "lte": "the field is a number, value or below",
    "contains": "the field is a text with value in it, a list with value among its items, or a mapping with that key",
    "exists": "the field is there",
    "not_exists": "the field is not there",
    "and": "every expression of exprs holds",
    "or": "at least one expression of exprs holds",
    "not": "expr does not hold",
    "always": "holds",
}
JOINING: Final = ("and", "or")
WITH_VALUE: Final = ("eq", "neq", "gt", "lt", "gte", "lte", "contains")

_MISSING: Final = object()


# ------------------------------------------------------------------ deciding
def condition_holds(condition: str | None, value: Any, output: Mapping[str, Any]) -> bool:
    """Whether the output has the key and it equals the value; True without a condition."""
    if condition is None:
        return True
    actual = _value_at(output, condition)
    return actual is not _MISSING and same(actual, value)


def holds(expression: Mapping[str, Any], facts: Facts) -> bool:
    """Whether a checked expression holds."""
    op = expression["op"]
    if op == "always":
        return True
    if op == "and":
        return all(holds(part, facts) for part in expression["exprs"])
    if op == "or":
        return any(holds(part, facts) for part in expression["exprs"])
    if op == "not":
        return not holds(expression["expr"], facts)
    actual = _look_up(expression["field"], facts)
    if op == "exists":
        return actual is not _MISSING
    if op == "not_exists":
        return actual is _MISSING
    return actual is not _MISSING and _COMPARISONS[op](actual, expression.get("value"))


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _contains(actual: Any, value: Any) -> bool:
    if isinstance(actual, str):
        return isinstance(value, str) and value in actual
    if isinstance(actual, (list, tuple)):
        return any(same(item, value) for item in actual)
    return isinstance(actual, Mapping) and isinstance(value, str) and value in actual


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": same,
    "neq": lambda actual, value: not same(actual, value),
    "gt": lambda actual, value: _number(actual) and _number(value) and actual > value,
    "lt": lambda actual, value: _number(actual) and _number(value) and actual < value,
    "gte": lambda actual, value: _number(actual) and _number(value) and actual >= value,
    "lte": lambda actual, value: _number(actual) and _number(value) and actual <= value,
    "contains": _contains,
}


def _look_up(field: Mapping[str, Any], facts: Facts) -> Any:
    scope = field["scope"]
    if scope == "agent":
        return _value_at(facts.outputs.get(field["agent"], {}), field["key"])
    return _value_at(getattr(facts, scope), field["key"])


def _value_at(holder: Any, key: str) -> Any:
    """The value of a key; where there is no key of that whole name, dots lead into mappings."""
    if isinstance(holder, Mapping) and key in holder:
        return holder[key]
    head, dot, rest = key.partition(".")
    if not dot or not isinstance(holder, Mapping) or head not in holder:
        return _MISSING
    return _value_at(holder[head], rest)


# ------------------------------------------------------------------ reading declarations
def _word(value: Any, words: Mapping[str, str]) -> str | None:
    """The word of the table in any spelling: `NotExists`, `not_exists`, `NOT_EXISTS`."""
    if not isinstance(value, str):
        return None
    plain = value.replace("_", "").lower()
    return next((word for word in words if word.replace("_", "") == plain), None)


def normal_expression(expression: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a checked expression with its words in lower case."""
    op = _word(expression["op"], OPS)
    assert op is not None
    if op in JOINING:
        return {"op": op, "exprs": [normal_expression(part) for part in expression["exprs"]]}
    if op == "not":
        return {"op": op, "expr": normal_expression(expression["expr"])}
    if op == "always":
        return {"op": op}
    given = {key: value for key, value in expression["field"].items() if value is not None}
    field = {**given, "scope": _word(given.get("scope", "current"), SCOPES)}
    return {"op": op, "field": field, **({"value": expression["value"]} if op in WITH_VALUE else {})}


def expression_problems(expression: Any, path: Path = (), depth: int = 1) -> Iterator[Problem]:
    """Every mistake in an expression."""
    if not isinstance(expression, Mapping):
        yield Problem(path, f"an expression is a mapping with an op, not {expression!r}")
        return
    if depth > PIPELINE_EXPRESSION_DEPTH_MAX:
        yield Problem(path, f"an expression is nested more than {PIPELINE_EXPRESSION_DEPTH_MAX} levels deep")
        return
    op = _word(expression.get("op"), OPS)
    if op is None:
        yield _no_such(expression.get("op", "nothing"), OPS, (*path, "op"), "op")
        return
    wanted = ("exprs",) if op in JOINING else ("expr",) if op == "not" else () if op == "always" else ("field",)
    wanted = (*wanted, "value") if op in WITH_VALUE else wanted
    for key in expression:
        if key not in ("op", *wanted):
            yield Problem((*path, str(key)), f"{op} has no setting {str(key)!r}", f"it takes {', '.join(wanted)}")
    missing = [key for key in wanted if key not in expression]
    for key in missing:
        yield Problem(path, f"{op} needs {key}", OPS[op])
    if missing:
        return
    if op in JOINING:
        yield from _list_problems(expression["exprs"], (*path, "exprs"), depth)
    elif op == "not":
        yield from expression_problems(expression["expr"], (*path, "expr"), depth + 1)
    elif op != "always":
        yield from _field_problems(expression["field"], (*path, "field"))


def fields_of(expression: Any, path: Path = (), depth: int = 1) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every field that an expression reads, with its path; none for a value that is no expression."""
    if not isinstance(expression, Mapping) or depth > PIPELINE_EXPRESSION_DEPTH_MAX:
        return
    if isinstance(expression.get("field"), Mapping):
        yield (*path, "field"), expression["field"]
    yield from fields_of(expression.get("expr"), (*path, "expr"), depth + 1)
    exprs = expression.get("exprs")
    for index, part in enumerate(exprs if isinstance(exprs, (list, tuple)) else ()):
        yield from fields_of(part, (*path, "exprs", index), depth + 1)


def _list_problems(exprs: Any, path: Path, depth: int) -> Iterator[Problem]:
    if not isinstance(exprs, (list, tuple)) or not exprs:
        yield Problem(path, "exprs is a list of expressions, with at least one in it")
        return
    for index, part in enumerate(exprs):
        yield from expression_problems(part, (*path, index), depth + 1)


def _field_problems(field: Any, path: Path) -> Iterator[Problem]:
    if not isinstance(field, Mapping):
        yield Problem(path, f"a field is a mapping with scope and key, not {field!r}")
        return
    field = {key: value for key, value in field.items() if value is not None}
    scope = _word(field.get("scope", "current"), SCOPES)
    if scope is None:
        yield _no_such(field["scope"], SCOPES, (*path, "scope"), "scope")
        return
    wanted = ("scope", "agent", "key") if scope == "agent" else ("scope", "key")
    for key in field:
        if key not in wanted:
            hint = f"it takes {', '.join(wanted)}"
            yield Problem((*path, str(key)), f"a field of scope {scope} has no setting {str(key)!r}", hint)
    for key in wanted[1:]:
        if not isinstance(field.get(key), str) or not field[key]:
            yield Problem((*path, key) if key in field else path, f"a field of scope {scope} needs {key}, a text")


def _no_such(value: Any, words: Mapping[str, str], path: Path, what: str) -> Problem:
    near = did_you_mean(value.lower(), words) if isinstance(value, str) else None
    return Problem(
        path, f"there is no {what} {value!r}", f"did you mean {near!r}?" if near else f"{what}s: {', '.join(words)}"
    )
