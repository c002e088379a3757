"""A part of JSON Schema: whether a value fits a declared schema.

`KEYWORDS` is the table of the keywords that are checked; any other keyword is a mistake (`schema_problems`), because a
schema with an unchecked keyword would promise more than is checked. `mismatch` gives the first place where a value does
not fit, as a sentence. There is no `$ref`, so the depth of a schema bounds the work; patterns are left out, because
matching a bad one can take exponential time. Equality is JSON's: 1 and 1.0 are the same, 1 and true are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lyra.core.checking.check import did_you_mean
from lyra.core.limits import SCHEMA_DEPTH_MAX
from lyra.errors import ConfigError

KEYWORDS: Final[dict[str, str]] = {
    "type": "one of object, array, string, number, integer, boolean, null, or a list of them",
    "properties": "the schema of each key of an object",
    "required": "keys that an object must have",
    "additionalProperties": "false: an object has no other keys; a schema: what they look like",
    "items": "the schema of each item of an array",
    "minItems": "items an array has at least",
    "maxItems": "items an array has at most",
    "minLength": "characters a string has at least",
    "maxLength": "characters a string has at most",
    "minimum": "a number is this or above",
    "maximum": "a number is this or below",
    "exclusiveMinimum": "a number is above this",
    "exclusiveMaximum": "a number is below this",
    "enum": "the value is one of these",
    "const": "the value is this",
    "anyOf": "at least one of these schemas fits",
    "oneOf": "exactly one of these schemas fits",
    "allOf": "all of these schemas fit",
    "not": "this schema does not fit",
}
# check nothing
_ANNOTATIONS: Final = ("title", "description", "default", "examples", "format", "$schema", "$id", "$comment")


def _is_integer(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, (list, tuple)),
    "string": lambda value: isinstance(value, str),
    "number": _number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength")
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SEVERAL: Final = ("anyOf", "oneOf", "allOf")
# Keywords whose value holds schemas: one, a list, or a mapping of names; some of them are not checked here.
_IN_ONE: Final = frozenset(("items", "not", "if", "then", "else", "contains", "propertyNames", "additionalProperties"))
_IN_LIST: Final = frozenset((*_SEVERAL, "prefixItems"))
_IN_MAPPING: Final = frozenset(("properties", "$defs", "definitions", "patternProperties"))


def map_parts(keyword: str, value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the value of a keyword with `change` applied to each schema that it holds."""
    if keyword in _IN_MAPPING and isinstance(value, Mapping):
        return {name: change(part) for name, part in value.items()}
    if keyword in _IN_LIST and isinstance(value, (list, tuple)):
        return [change(part) for part in value]
    return change(value) if keyword in _IN_ONE else value


def is_equal_json(left: Any, right: Any) -> bool:
    """JSON equality: 1 and 1.0 are equal, True and 1 are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(is_equal_json(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(is_equal_json, left, right))
    return bool(left == right)


# ------------------------------------------------------------------ whether a value fits
def mismatch(value: Any, schema: Mapping[str, Any] | bool, place: str = "") -> str | None:
    """Return where and why a value does not fit a checked schema; None if it does."""
    if isinstance(schema, bool):
        return None if schema else f"{place or 'the value'} may not be there"
    for keywords, check in _CHECKS:
        if not keywords.isdisjoint(schema):
            wrong = check(value, schema, place)
            if wrong is not None:
                return wrong
    return None


def _type(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    words = schema["type"] if isinstance(schema["type"], (list, tuple)) else (schema["type"],)
    if any(_TYPES[word](value) for word in words):
        return None
    return f"{place or 'the value'} is {_kind(value)}, not {' or '.join(words)}"


def _kind(value: Any) -> str:
    return next((word for word, fits in _TYPES.items() if word != "integer" and fits(value)), type(value).__name__)


def _object(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    if not isinstance(value, Mapping):
        return None
    known = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            return f"{place or 'the value'} has no {key}"
    others = schema.get("additionalProperties", True)
    for key, item in value.items():
        here = f"{place}.{key}" if place else str(key)
        wrong = mismatch(item, known.get(key, others), here)
        if wrong is not None:
            return wrong
    return None


def _array(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    if not isinstance(value, (list, tuple)):
        return None
    for index, item in enumerate(value if "items" in schema else ()):
        wrong = mismatch(item, schema["items"], f"{place}[{index}]")
        if wrong is not None:
            return wrong
    return _length(len(value), schema.get("minItems"), schema.get("maxItems"), f"{place or 'the value'}", "items")


def _string(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    if not isinstance(value, str):
        return None
    return _length(len(value), schema.get("minLength"), schema.get("maxLength"), place or "the value", "characters")


def _length(count: int, least: int | None, most: int | None, place: str, what: str) -> str | None:
    if least is not None and count < least:
        return f"{place} has {count} {what}, and needs {least}"
    if most is not None and count > most:
        return f"{place} has {count} {what}, and may have {most}"
    return None


_SIDES: Final[dict[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minimum": (lambda value, bound: value >= bound, "below"),
    "maximum": (lambda value, bound: value <= bound, "above"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "not above"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "not below"),
}


def _bounds(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    for keyword in _BOUNDS if _number(value) else ():
        if keyword in schema and not _SIDES[keyword][0](value, schema[keyword]):
            return f"{place or 'the value'} is {value!r}, {_SIDES[keyword][1]} {schema[keyword]}"
    return None


def _enum(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    if any(is_equal_json(value, choice) for choice in schema["enum"]):
        return None
    return f"{place or 'the value'} is none of {', '.join(map(repr, schema['enum']))}"


def _const(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    return None if is_equal_json(value, schema["const"]) else f"{place or 'the value'} is not {schema['const']!r}"


def _all_of(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    return next((wrong for part in schema["allOf"] if (wrong := mismatch(value, part, place)) is not None), None)


def _any_of(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    if any(mismatch(value, part, place) is None for part in schema["anyOf"]):
        return None
    return f"{place or 'the value'} fits none of the schemas of anyOf"


def _one_of(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    fitting = sum(mismatch(value, part, place) is None for part in schema["oneOf"])
    return None if fitting == 1 else f"{place or 'the value'} fits {fitting} of the schemas of oneOf, not one"


def _not(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    return f"{place or 'the value'} fits what it may not" if mismatch(value, schema["not"], place) is None else None


_Check = Callable[[Any, Mapping[str, Any], str], str | None]
_CHECKS: Final[tuple[tuple[frozenset[str], _Check], ...]] = (
    (frozenset({"type"}), _type),
    (frozenset({"properties", "required", "additionalProperties"}), _object),
    (frozenset({"items", "minItems", "maxItems"}), _array),
    (frozenset({"minLength", "maxLength"}), _string),
    (frozenset(_BOUNDS), _bounds),
    (frozenset({"enum"}), _enum),
    (frozenset({"const"}), _const),
    (frozenset({"allOf"}), _all_of),
    (frozenset({"anyOf"}), _any_of),
    (frozenset({"oneOf"}), _one_of),
    (frozenset({"not"}), _not),
)


# ------------------------------------------------------------------ every mistake of a schema
Path = tuple[str | int, ...]


def schema_problems(schema: Any, path: Path = (), depth: int = 1) -> Iterator[tuple[Path, str, str | None]]:
    """Every mistake of a schema: its path, what is wrong, and a hint."""
    if isinstance(schema, bool) and depth > 1:
        return
    if not isinstance(schema, Mapping):
        yield path, f"a schema is a mapping of keywords, not {schema!r}", None
        return
    if depth > SCHEMA_DEPTH_MAX:
        yield path, f"a schema is nested more than {SCHEMA_DEPTH_MAX} levels deep", None
        return
    for keyword, value in schema.items():
        here = (*path, str(keyword))
        if keyword in KEYWORDS:
            yield from _keyword_problems(keyword, value, here, depth)
        elif keyword not in _ANNOTATIONS:
            near = did_you_mean(str(keyword), KEYWORDS)
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(KEYWORDS)}"
            yield here, f"a schema has no keyword {str(keyword)!r} here", hint


def _keyword_problems(keyword: str, value: Any, path: Path, depth: int) -> Iterator[tuple[Path, str, str | None]]:
    wrong = path, f"{keyword}: {KEYWORDS[keyword]}; not {value!r}", None
    if keyword == "type":
        words = value if isinstance(value, (list, tuple)) and value else [value]
        if not all(isinstance(word, str) and word in _TYPES for word in words):
            yield wrong
    elif keyword == "properties":
        if not isinstance(value, Mapping):
            yield wrong
            return
        for key, part in value.items():
            yield from schema_problems(part, (*path, str(key)), depth + 1)
    elif keyword == "required":
        if not (isinstance(value, (list, tuple)) and all(isinstance(key, str) for key in value)):
            yield wrong
    elif keyword in _COUNTS:
        if not _is_integer(value) or value < 0:
            yield wrong
    elif keyword in _BOUNDS:
        if not _number(value):
            yield wrong
    elif keyword == "enum":
        if not isinstance(value, (list, tuple)) or not value:
            yield wrong
    elif keyword in _SEVERAL:
        if not isinstance(value, (list, tuple)) or not value:
            yield wrong
            return
        for index, part in enumerate(value):
            yield from schema_problems(part, (*path, index), depth + 1)
    elif keyword != "const":  # items, additionalProperties, not
        yield from schema_problems(value, path, depth + 1)


# ---------------------------------------------------------------- schema subset
# The part of a JSON schema that `core.checking.schema` can check.

_PARTS_MAX: Final = 5_000  # schemas inside a schema, with references followed
_EXACT: Final = ("not", "oneOf")  # dropped where a part of them was left out: a weaker part would refuse more values
_SUBSET_ANNOTATIONS: Final = frozenset(  # decide nothing by themselves
    ("$ref", "$defs", "definitions", "title", "description", "default", "examples", "$schema", "$id", "$comment")
)
# left out: without the key, the value applies to too many items
_OTHERS: Final = {"patternProperties": "additionalProperties", "prefixItems": "items"}


def checkable_part(schema: Mapping[str, Any], *, drops_mistakes: bool = False) -> Any:
    """Return the schema without what cannot be checked. Mistakes stay, for `schema_problems` to report, or are
    dropped."""
    return _Reader(schema, drops_mistakes).read(schema, 1)


class _Reader:
    """One pass over a schema; `is_exact` becomes False where the result accepts more than the schema."""

    def __init__(self, root: Mapping[str, Any], drops_mistakes: bool) -> None:
        self._root = root
        self._drops_mistakes = drops_mistakes
        self._parts_left = _PARTS_MAX
        self.is_exact = True

    def read(self, schema: Any, depth: int) -> Any:
        self._parts_left -= 1
        if isinstance(schema, bool) or not (isinstance(schema, Mapping) or self._drops_mistakes):
            return schema
        if not isinstance(schema, Mapping) or depth >= SCHEMA_DEPTH_MAX or self._parts_left < 0:
            return self._open(is_exact=schema == {})
        part: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in KEYWORDS:
                was_exact, self.is_exact = self.is_exact, True
                kept = map_parts(keyword, value, lambda inner: self.read(inner, depth + 1))
                if self.is_exact or keyword not in _EXACT:
                    part[keyword] = kept
                self.is_exact = self.is_exact and was_exact
            elif keyword not in _SUBSET_ANNOTATIONS:
                self.is_exact = False
        for keyword, others in _OTHERS.items():
            if keyword in schema:
                part.pop(others, None)
        if "$ref" in schema:
            target = self.read(self._target(schema["$ref"]), depth + 1)
            if not part:
                return target
            if isinstance(part.setdefault("allOf", []), list):
                part["allOf"].append(target)
        return self._open() if self._drops_mistakes and any(schema_problems(part)) else part

    def _open(self, *, is_exact: bool = False) -> dict[str, Any]:
        """Return a schema that accepts every value."""
        self.is_exact = self.is_exact and is_exact
        return {}

    def _target(self, reference: Any) -> Any:
        """Return the target of a reference within the schema; other references accept every value."""
        target: Any = self._root if isinstance(reference, str) and reference.partition("/")[0] == "#" else None
        for step in str(reference).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else None
        return self._open() if target is None else target


class CheckedSchema:
    """A JSON schema that a caller wrote, as a check of values: the part of it that `schema.mismatch` can check.

    `what` is named in the ConfigError for a mistake in the schema, `key` is the setting that held it.
    """

    __slots__ = ("_schema",)

    def __init__(self, schema: Mapping[str, Any], what: str, *, key: str) -> None:
        self._schema = checkable_part(schema)
        for path, problem, hint in schema_problems(self._schema):
            place = ".".join(str(step) for step in path)
            raise ConfigError(f"the schema of {what} has a mistake at {place}: {problem}", hint=hint, key=key)

    def check(self, value: Any) -> Any:
        """Return the value; ValueError with a sentence where it does not fit."""
        wrong = mismatch(value, self._schema)
        if wrong is not None:
            raise ValueError(wrong)
        return value
