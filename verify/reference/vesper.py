"""Reference of Vesper's files, from the tables that read, check and run them.

`vesper-nodes.md` has the sections with their keys, the types, the operations, the expression language and all codes;
`vsp.schema.json` is the JSON Schema for editors. Called by `pages`, which writes and checks all pages.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import lyra.vesper.check
import lyra.vesper.nodes
from lyra.vesper.check.rules import ACTIONS
from lyra.vesper.check.semantics import NODE_TYPES
from lyra.vesper.expressions import parser
from lyra.vesper.expressions.functions import AGGREGATES, CHARS_A_STEP, DIRECTIVES, FORMS, FUNCTIONS
from lyra.vesper.format.layout import KEY_ORDER
from lyra.vesper.lsp.schema import SECTION_TEXTS, STEP_TEXTS, json_schema, schema_text
from lyra.vesper.nodes.steps import CUSTOM, OPERATIONS, STEP_KEYS, Operation
from lyra.vesper.values.outcome import CODES
from lyra.vesper.values.types import SCALARS, describe

Table = Callable[[tuple[str, ...], Sequence[tuple[str, ...]]], str]

_PAGE: Final = """\
# Vesper: nodes

{written}

A node is a YAML file whose name ends in `.vsp`. Its keys, the operations of its steps, the expressions in it and the
codes it can answer with are listed here. Editors that read a JSON Schema complete and check such files with
[vsp.schema.json](vsp.schema.json); `vesper validate` checks what they mean, `vesper fmt` gives them one layout.

## Keys

In this order, by `vesper fmt`. The first three must be there.

{keys}

Usual values of `type`:
{node_types}.

{sections}

## Types

A type is the text of an input, an output or a field, or its key `type`. Custom types of `types` go by their names.

{types}

## Steps

[Words of a node](../how-to/node-steps.md) has an example of each operation, of the words of `constraints`, the keys of
`retry_policy` and the rights that acts need. Keys that every step may have:

{step_keys}

### Operations

Settings stand at the top of a step or under `parameters`. Those in bold must be there. Operations that *act* go through
the kernel, which checks the node's rights; the others only compute. *Free* operations take values by names of your
choice under `parameters`.

{operations}

`{custom}NAMESPACE.OPERATION` calls a function of the embedding program, by registration; all its parameters are free.

### Rules about errors

`on_error` of a step and `error_handling` of the node say what is done about an error:
{actions}. `error_type` is `any`, an error code, the code in a server's answer or its status (`http_402`, `http_4xx`);
the [how-to](../how-to/nodes.md#the-errors-of-a-node) lists what acts fail with.

## Expressions

Keywords are upper case. Operators, those that bind weakest first:

{operators}

Besides: `NOT` (weaker than comparisons, stronger than `AND`), `IS NOT NULL`, `FORALL x IN list: condition`,
`EXISTS x IN list: condition`, `list.field` (the field of each element), `text.length`. Comparisons do not chain:
`1 < x AND x < 5`. `{{expression}}` stands for its value, as in a template.
{forms} have forms of their own:
`old(x)` is the value before the first step, `all(…)` and `any(…)` judge each element.

`a % b` has the sign of `a`: `-7 % 3` is `-1`. `/` of two integers is an integer where it leaves nothing over, else a
decimal of at most 28 digits; `div` cuts it off.

**Lists, records and maps** are written `[1, 2]`, `{{name: 'Ada', age: 36}}` and `{{1: 'one', 2: 'two'}}`. A bare name
before the colon is a text; any other expression there stands in parentheses, `{{(id): 1}}`. Constant texts as keys make
a record, whose fields are `person.name`; the elements of a map are `map[key]` and `get(map, key, default)`. The keys of
a map are all of one type: string, integer, decimal, boolean or timestamp. In JSON, and wherever a value has no declared
type, a key that is no text is the text that stands for it (`{{"1": "one"}}`).

**Times.** `timestamp - timestamp` is a duration, `timestamp + duration` and `timestamp - duration` are timestamps.
A duration is an exact number of seconds, also in JSON; an input of type `duration` may also be a text such as `30d`,
`1.5h` or `500ms`. Durations are added, compared, multiplied and divided by numbers; `duration / days(1)` is a number of
days. A timestamp is kept to the microsecond and lies in the years 1 to 9999, else the result is an `overflow`. Zones go
by their names in the tz database, such as `Europe/Berlin`. A local time that the zone skips (its clocks go forward) is
read by the offset before the gap: 02:30 becomes 03:30. One that it has twice (its clocks go back) is the first of the
two. Directives of formats:

{directives}

**Functions.** Null is a type error (`type_error`) where the signature has no `?` at the kind, and so is a value of
another kind; the errors besides are in the table. `number` is an integer or a decimal, `T` and other letters are any
type, `O` is one that has an order, `N` a number or a duration, `list<T>` an array, or a set in the order of its
elements. Texts are counted in characters (code points). A result that takes more memory than the node may is a
`resource_limit`. In the rounds of loops, calls that go through a list or text are charged one step for each element,
and for each {chars} characters.

{functions}

Aggregates over a list: {aggregates}; `COUNT(*)` counts the elements of a group.

Regular expressions (`matches`, `pattern:`) have Python's syntax and match as Python's `re` does, in time that grows
with the text. `$` is the very end of the text: unlike in Python it does not stand before a line feed that ends it. Back
references, look-around, possessive and atomic parts, `(?a:…)` and `(?u:…)` are refused (`bad_pattern`).

## Error codes

Codes that Lyra gives; a node declares others of its own in `outputs.error`.

{codes}

## Remarks of the checker

The codes in the output of `vesper validate --json`.

{remarks}
"""

_TYPE_TEXTS: Final = {
    "string": "a text",
    "integer": "a whole number of 64 bits with a sign",
    "decimal": "an exact decimal number; `decimal(2)`, or `scale: 2`, has exactly two digits after the point",
    "boolean": "true or false",
    "bytes": "bytes; base64 in JSON",
    "timestamp": "a moment; in JSON a date, or a date, T or a space and a time, such as `2026-03-04` and "
    "`2026-03-04T05:06:07.5+01:00`; in UTC where it has no offset, and on the way out, with Z",
    "duration": "an exact number of seconds; on the way in also a text such as `30d`, `1.5h` or `500ms`",
    "any": "whatever an execution brings",
}
_GENERIC_TYPES: Final = (
    ("`enum[a, b]`", "one of some texts; also a list, or `type: enum` with `values`"),
    ("`array<T>`", "a list"),
    ("`set<T>`", "a list without duplicates, of scalars"),
    ("`map<K, T>`", "values by keys: strings, integers, decimals, booleans or timestamps; texts in JSON"),
)
_CODE_TEXTS: Final = {
    "invalid_input": "an input is missing, unknown, of the wrong type or breaks a constraint",
    "precondition_failed": "a precondition is false",
    "postcondition_failed": "a postcondition is false",
    "invariant_failed": "an invariant is false, at the start, after an act or at the end",
    "validation_failed": "a validation step fails and names no other code",
    "overflow": "a number is larger than its type allows",
    "division_by_zero": "a divisor is zero",
    "type_error": "values do not fit an operation, or an output its type",
    "unknown_zone": "a text names no time zone; `is_zone(text)` tells beforehand",
    "not_a_number": "a text writes no number; `matches(text, '^[+-]?[0-9]+$')` tells beforehand",
    "incomplete_output": "the flow ends without a required output",
    "invalid_transition": "a state machine does not allow the move, or the entity is in another state",
    "loop_limit": "a loop runs more often than it may",
    "capability_denied": "the node needs a right that was not granted",
    "timeout": "the time of the node or of an act is over",
    "resource_limit": "the node needs more steps or memory than it may",
    "effect_failed": "an act fails for another reason",
    "not_configured": "what an act needs was not handed in: the database, the address of a provider, an agent, a "
    "function, a node; no rule is met by it",
}


def pages(written: str, table: Table) -> dict[str, str]:
    """The page and the schema by file name."""
    schema = json_schema()
    text = _PAGE.format(
        written=written,
        keys=table(("key", "is"), [(f"`{key}`", SECTION_TEXTS[key]) for key in KEY_ORDER]),
        node_types=_listed(NODE_TYPES),
        sections="\n\n".join(_sections(schema, table)),
        types=table(("type", "is"), _types()),
        step_keys=table(("key", "is"), [(f"`{key}`", STEP_TEXTS[key]) for key in STEP_KEYS]),
        operations=table(("operation", "does", "settings", ""), [_operation(row) for row in OPERATIONS.values()]),
        custom=CUSTOM,
        actions=_listed(ACTIONS),
        operators=table(("strength", "operators"), _operators()),
        forms=_listed(FORMS),
        directives=table(("directive", "is"), [(f"`%{letter}`", _directive(letter)) for letter in DIRECTIVES]),
        chars=f"{CHARS_A_STEP:,}",
        functions=_functions(table),
        aggregates=_listed(AGGREGATES),
        codes=table(("code", "means"), [(f"`{code}`", _CODE_TEXTS[code]) for code in CODES]),
        remarks=table(("code", "severity"), _remarks()),
    )
    return {"vesper-nodes.md": text, "vsp.schema.json": schema_text()}


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


# ------------------------------------------------------------------ sections
def _sections(schema: dict[str, Any], table: Table) -> Iterator[str]:
    """A table of keys for each section whose keys are fixed, and for fields."""
    for key in KEY_ORDER:
        rows = list(_keys(schema["properties"][key], ""))
        if rows:
            yield f"### {key}\n\n{table(('key', 'form'), rows)}"
    field = next(form for form in schema["$defs"]["fields"]["additionalProperties"]["anyOf"] if "properties" in form)
    title = "### An input, an output or a field of a type\n\nA type alone, a list of texts (an enum), or a mapping:"
    yield f"{title}\n\n{table(('key', 'form'), list(_keys(field, '')))}"


def _keys(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """The keys of a mapping and of the mappings inside it."""
    for key, inner in schema.get("properties", {}).items():
        meaning = f"; {inner['description']}" if "description" in inner else ""
        yield f"`{prefix}{key}`", f"{_form(inner)}{meaning}"
        yield from _keys(inner, f"{prefix}{key}.")
    for name, mark in (("items", "[]"), ("additionalProperties", "NAME")):
        inner = schema.get(name)
        if isinstance(inner, dict):
            yield from _keys(inner, f"{prefix.removesuffix('.')}{mark}." if mark == "[]" else f"{prefix}{mark}.")


def _form(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"] if word is not None)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2].replace("_", " ")
    if "anyOf" in schema:
        forms = dict.fromkeys(_form(form) for form in schema["anyOf"] if form != {"type": "null"})
        return " or ".join(forms)
    kinds = schema.get("type", "anything")
    kinds = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
    if "string" in kinds and "number" in kinds:
        return "text"
    words = {
        "string": "text",
        "array": "list",
        "object": "mapping",
        "integer": "whole number",
        "boolean": "true or false",
    }
    return " or ".join(words.get(kind, kind) for kind in kinds)


def _types() -> list[tuple[str, str]]:
    return [*((f"`{describe(SCALARS[name])}`", _TYPE_TEXTS[name]) for name in SCALARS), *_GENERIC_TYPES]


def _operation(operation: Operation) -> tuple[str, ...]:
    settings = [f"**`{key}`**" if key in operation.required else f"`{key}`" for key in operation.settings]
    marks = [word for word, holds in (("acts", operation.acts), ("free", operation.free)) if holds]
    return f"`{operation.name}`", operation.text, ", ".join(settings), ", ".join(marks)


# ------------------------------------------------------------------ expressions
def _operators() -> list[tuple[str, str]]:
    levels: dict[int, list[str]] = {}
    for operator, level in parser._BINARY.items():
        levels.setdefault(level, []).append({"NOT": "NOT IN", "IS": "IS NULL"}.get(operator, operator))
    return [(str(number), _listed(levels[level])) for number, level in enumerate(sorted(levels), 1)]


def _functions(table: Table) -> str:
    """One table for each group of functions."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for function in FUNCTIONS.values():
        if function.is_public:
            example = f"`{function.example}` is `{function.value}`"
            row = f"`{function.signature}`", function.text, example, ", ".join(f"`{code}`" for code in function.errors)
            groups.setdefault(function.group, []).append(row)
    heads = "function", "is", "example", "errors"
    return "\n\n".join(f"### {group}\n\n{table(heads, rows)}" for group, rows in groups.items())


def _directive(letter: str) -> str:
    text, is_read = DIRECTIVES[letter]
    return text if is_read else f"{text}; not for `parse_timestamp`"


# ------------------------------------------------------------------ remarks
_SEVERITIES: Final = {"error": "error", "warn": "warning", "info": "info"}
_NAMES: Final = {"ERROR": "error", "WARNING": "warning", "INFO": "info"}


def _remarks() -> list[tuple[str, str]]:
    """The codes that the reader and the checker pass to their remarks, found in their source."""
    severities: dict[str, set[str]] = {}
    for module in _modules(lyra.vesper.nodes, lyra.vesper.check):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            for code, severity in _remark(node):
                severities.setdefault(code, set()).add(severity)
    return [(f"`{code}`", ", ".join(sorted(severities[code]))) for code in sorted(severities)]


def _modules(*packages: ModuleType) -> Iterator[ModuleType]:
    for package in packages:
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield import_module(info.name)


def _remark(node: ast.AST) -> Iterator[tuple[str, str]]:
    """`self.error("code", …)`, `state.mark(WARNING, "code", …)`, `Issue(severity=ERROR, code="code")`."""
    if not isinstance(node, ast.Call):
        return
    values = [argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)]
    texts = [value for value in values if isinstance(value, str)]
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in _SEVERITIES and texts and isinstance(node.args[0], ast.Constant):
        yield texts[0], _SEVERITIES[name]
    elif name == "_wrong" and texts and isinstance(node.args[0], ast.Constant):
        yield texts[0], "error"
    elif name == "mark" and texts and isinstance(node.args[0], ast.Name) and node.args[0].id in _NAMES:
        yield texts[0], _NAMES[node.args[0].id]
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    severity, code = keywords.get("severity"), keywords.get("code")
    if isinstance(severity, ast.Name) and severity.id in _NAMES and isinstance(code, ast.Constant):
        yield str(code.value), _NAMES[severity.id]
