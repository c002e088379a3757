"""Hostile texts are data: in values, templates, expressions and everywhere else in a file they execute nothing.

Each text would leave a file behind if it were run as Python. It is put into every place of a node that holds a text;
the node is refused, or gives the text back unchanged on every path, while `eval`, `exec`, `open` and imports are
forbidden. Generated Python is looked at as a tree and as the source that `vesper compile` writes: nothing in it may
come from a text but constants, names that the generator chose, and comments of one line.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lyra import vesper
from lyra.errors import LyraError
from lyra.vesper.check import check_text, has_errors
from lyra.vesper.check.judge import program_of
from lyra.vesper.expressions.parser import parse_expression, parse_template
from lyra.vesper.python.generate import generate, source
from tests.vesper.language import corpus

PATHS = ("python", "direct", "reference")
SECONDS_MAX = 2.0  # of CPU, for one hostile file

TEXTS = [
    "__import__('os').system('touch CANARY')",
    "open('CANARY', 'w')",
    "eval(\"open('CANARY', 'w')\")",
    "'; open('CANARY', 'w'); '",
    '"); open("CANARY", "w"); ("',
    '"""\nopen("CANARY", "w")\n"""',
    "'''\nopen('CANARY', 'w')\n'''",
    "\nopen('CANARY', 'w')\n",
    "x\r\nopen('CANARY', 'w') #",
    "x\u2028open('CANARY', 'w')",
    "x\x0copen('CANARY', 'w')",
    "\\",
    "\\'",
    "\\N{DIGIT ONE}\\x41\\u0041",
    "{}",
    "{0}",
    "{0.__class__.__mro__[1].__subclasses__()}",
    "{n.__class__.__init__.__globals__}",
    "{n!r:>1000000000}",
    "%s%s%s%n %(n)s",
    "${n} $(touch CANARY) `touch CANARY`",
    'f\'{open("CANARY", "w")}\'',
    "x'); DROP TABLE log; --",
    "' OR '1'='1",
    '" OR ""="',
    "__class__",
    "().__class__.__bases__[0]",
    "!!python/object/apply:os.system ['touch CANARY']",
    "# comment",
    "<script>open('CANARY')</script>",
    "\0",
    "\U0001f600" * 100,
    "a" * 20_000,
]

# Every text of a node with the hostile text in it, as JSON, which is YAML; `text` must come out of `text`.
TEMPLATE: dict[str, Any] = {
    "node_id": "hostile_v1",
    "type": "function",
    "intent": "TEXT",
    "metadata": {"author": "TEXT", "description": "TEXT", "tags": ["TEXT"]},
    "types": {"Word": {"base": "string", "description": "TEXT"}},
    "inputs": {
        "n": {"type": "integer", "description": "TEXT", "required": False, "default": 1},
        "given": {"type": "string", "required": False, "default": "TEXT", "example": "TEXT"},
    },
    "outputs": {
        "success": {"text": "string", "joined": "string", "given": "string", "data": "any", "same": "boolean"},
        "error": {"error_code": "string", "message": "string"},
    },
    "flow": [
        {
            "step": "TEXT",
            "description": "TEXT",
            "operation": "string_template",
            "template": "BRACED",
            "output": "text",
        },
        {"step": "join", "operation": "arithmetic", "expression": "'' + LITERAL", "output": "joined"},
        {"step": "same", "operation": "arithmetic", "expression": "joined == text", "output": "same"},
        {"step": "data", "operation": "data_transform", "input": "[given]", "transform": "map", "output": "data"}
        | {"function": {"TEXT": "record"}},
        {"step": "check", "operation": "validation", "guards": ["same"]}
        | {"on_failure": {"return_error": {"error_code": "BRACED", "message": "BRACED"}}},
    ],
    "documentation": {"TEXT": "TEXT"},
}


def filled(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {filled(key, text): filled(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, text) for item in value]
    if not isinstance(value, str):
        return value
    braced = text.replace("{", "{{").replace("}", "}}")
    return value.replace("LITERAL", literal(text)).replace("BRACED", braced).replace("TEXT", text)


def written(value: Any) -> str:
    """The value as JSON that is YAML too, which has no pairs of surrogates."""
    text = json.dumps(value)
    return re.sub(r"\\ud83d\\ude00", r"\\U0001f600", text)


def literal(text: str) -> str:
    """The text as a text of the expression language."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The working folder of a test, in which no file was left behind."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert os.listdir(tmp_path) == []


@contextmanager
def forbidden() -> Iterator[None]:
    """Everything that a hostile text would need is forbidden."""

    def refuse(*values: Any, **_: Any) -> Any:
        raise AssertionError(f"something was executed: {values[:1]!r:.200}")

    def own_modules(name: str, *values: Any) -> Any:
        is_own = name.partition(".")[0] in ("lyra", "yaml")
        return imported(name, *values) if is_own else refuse(name)

    imported = builtins.__import__

    with pytest.MonkeyPatch.context() as guard:
        for owner, name in ((os, "system"), (os, "open"), (subprocess, "Popen")):
            guard.setattr(owner, name, refuse)
        for name in ("eval", "exec", "compile", "open"):
            guard.setattr(builtins, name, refuse)
        guard.setattr(builtins, "__import__", own_modules)
        yield


def judged(text: str) -> vesper.Node | None:
    """The node of a text, None where it is refused, in bounded time."""
    began = time.process_time()
    try:
        return vesper.load(text + "\n")
    except LyraError:
        return None
    finally:
        assert time.process_time() - began < SECONDS_MAX


# ---------------------------------------------------------------- texts in values and files
ECHO = """\
node_id: echo_v1
type: function
intent: give a text back in every way
inputs: {s: string, v: any, m: "map<string, string>"}
outputs: {s: string, v: any, text: string, joined: string, keys: any, group: any, is_in: boolean}
flow:
  - {step: text, operation: string_template, template: "{s}{{}}{v}", output: text}
  - {step: joined, operation: arithmetic, expression: "s + s", output: joined}
  - {step: keys, operation: arithmetic, expression: "m[s]", output: keys}
  - step: group
    operation: data_transform
    input: "[v, s]"
    transform: reduce
    initial: ""
    function: "accumulator + record"
    output: group
  - {step: is_in, operation: arithmetic, expression: "s IN m AND s CONTAINS s", output: is_in}
"""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.usefixtures("folder")
def test_hostile_values_stay_values(path: str) -> None:
    node = vesper.load(ECHO)
    assert vesper.execute(node, {"s": "", "v": "", "m": {"": ""}}, path=path).status == "success"
    for text in TEXTS:
        with forbidden():
            outcome = vesper.execute(node, {"s": text, "v": text, "m": {text: text}}, path=path)
        assert outcome.outputs == {
            "s": text,
            "v": text,
            "text": f"{text}{{}}{text}",
            "joined": text + text,
            "keys": text,
            "group": text + text,
            "is_in": True,
        }


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_hostile_texts_in_a_file_stay_texts(number: int) -> None:
    """Wherever a file has a text: the node is refused, or gives it back."""
    text = TEXTS[number]
    node = judged(written(filled(TEMPLATE, text)))
    if node is None:
        assert len(text) > 4_000 or "\0" in text, text  # an expression is no longer; no YAML has a zero character
        return
    for path in PATHS:
        vesper.execute(node, {}, path=path)
    for path in PATHS:
        with forbidden():
            outcome = vesper.execute(node, {}, path=path)
        assert outcome.outputs == {
            "text": text,
            "joined": text,
            "given": text,
            "data": [{text: text}],
            "same": True,
        }, (path, outcome)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_hostile_texts_in_generated_source(number: int) -> None:
    """The source that `vesper compile` writes has the same tree with any text: only constants differ."""
    node = judged(written(filled(TEMPLATE, TEXTS[number])))
    if node is None:
        return
    hostile_source = ast.parse(source(program_of(node)))
    assert calls_of(hostile_source) == plain_calls()
    inspect_tree(hostile_source)
    inspect_tree(generate(program_of(node)).tree)


@cache
def plain_calls() -> list[str]:
    """Return the calls of the template with a harmless text in it."""
    plain = judged(written(filled(TEMPLATE, "a plain text")))
    assert plain is not None
    return calls_of(ast.parse(source(program_of(plain))))


def calls_of(tree: ast.AST) -> list[str]:
    """The functions that a tree calls and what it imports."""
    calls = [ast.unparse(part.func) for part in ast.walk(tree) if isinstance(part, ast.Call)]
    return sorted(calls) + sorted(ast.unparse(part) for part in ast.walk(tree) if isinstance(part, ast.ImportFrom))


_MODULES = {
    "__future__",
    "dataclasses",
    "datetime",
    "decimal",
    "typing",
    "collections.abc",
    "lyra.vesper.python.runtime",
}
_BANNED = {"eval", "exec", "compile", "open", "__import__", "getattr", "setattr", "globals", "locals", "vars", "input"}


def inspect_tree(tree: ast.AST) -> None:
    """Generated code imports Lyra's own functions and names no others that reach outside."""
    for part in ast.walk(tree):
        assert not isinstance(part, ast.Import)
        if isinstance(part, ast.ImportFrom):
            assert part.module in _MODULES
        if isinstance(part, ast.Attribute):
            assert not part.attr.startswith("__"), part.attr
        if isinstance(part, ast.Name):
            assert part.id not in _BANNED, part.id
            assert not part.id.startswith("__"), part.id


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=corpus.name_of(path), marks=[pytest.mark.long] if number % 3 else [])
        for number, path in enumerate(corpus.files())
    ],
)
def test_generated_code_of_the_corpus(path: Path) -> None:
    inspect_tree(generate(corpus.program(path)).tree)


# ---------------------------------------------------------------- expressions
EXPRESSIONS = [
    *TEXTS,
    "n.__class__",
    "n.__class__.__mro__",
    "[].__class__",
    "''.format(n)",
    "'{}'.format",
    "n if n else n",
    "lambda: n",
    "[x for x in xs]",
    "n := 1",
    "n ** 999999999",
    "9 ** 9 ** 9",
    "n; n",
    "n = 1",
    "print(n)",
    "getattr(n, 'real')",
    "eval('1')",
    "exec('1')",
    "open('CANARY', 'w')",
    "globals()",
    "old.__globals__",
    "len.__call__(n)",
    "SUM(__import__('os'))",
    "FORALL __class__ IN [n]: open('CANARY')",
    "matches('x', '(?P<a>x)(?P=a)')",
    "'a' * 10000000000",
    "(" * 5_000,
    "-" * 5_000 + "1",
    "NOT " * 1_000 + "true",
    "[" * 63 + "]" * 63,
    "1" * 5_000,
    "1 + " * 1_000 + "1",
    "n." * 1_000 + "n",
    "n" + "[0]" * 1_000,
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
def test_hostile_expressions_execute_nothing(number: int) -> None:
    """As an expression, a guard, a contract, a placeholder: refused, or evaluated without any act."""
    text = EXPRESSIONS[number]
    head: dict[str, Any] = {
        "node_id": "n_v1",
        "type": "function",
        "intent": "try",
        "inputs": {"n": "any"},
        "outputs": {"r": "any"},
    }
    nodes: list[dict[str, Any]] = [
        {"flow": [{"operation": "arithmetic", "expression": text, "output": "r"}]},
        {"flow": [{"operation": "string_template", "template": "{" + text + "}", "output": "r"}]},
        {"flow": [{"operation": "string_template", "template": text, "output": "r"}]},
        {"flow": [{"operation": "return", "guards": [text], "return_success": {"r": 1}}]},
        {"flow": [{"operation": "return", "return_success": {"r": "{n}"}}], "contracts": {"preconditions": [text]}},
        {"flow": [{"operation": "return", "return_success": {"r": "{n}"}}]}
        | {"inputs": {"n": {"type": "any", "constraints": [text]}}},
    ]
    accepted = [node for part in nodes if (node := judged(written(head | part))) is not None]
    for node in accepted:
        inspect_tree(generate(program_of(node)).tree)
        for path in PATHS:
            vesper.execute(node, {"n": 1}, path=path)
        with forbidden():
            results = [vesper.execute(node, {"n": 1}, path=path) for path in PATHS]
        assert len({(result.status, repr(result.outputs)) for result in results}) == 1


def test_names_from_outside_are_names() -> None:
    """Words and built-ins of Python, and names of the generated module, are only names."""
    names = ["class", "import", "None", "True", "eval", "open", "self", "run", "NodeError", "Decimal", "type", "len"]
    text = {
        "node_id": "names_v1",
        "type": "function",
        "intent": "use many names",
        "inputs": dict.fromkeys(names, "integer"),
        "outputs": {"sum": "integer"},
        "flow": [{"operation": "arithmetic", "expression": " + ".join(names), "output": "sum"}],
    }
    node = judged(written(text))
    assert node is not None
    inputs = {name: 2**number for number, name in enumerate(names)}
    for path in PATHS:
        assert vesper.execute(node, inputs, path=path).outputs == {"sum": 2 ** len(names) - 1}


@pytest.mark.parametrize(
    "name", ["a b", "a;b", "a\nb", "1a", "a-b", "a.b", "é", "", "{n}", "a'", "open('x')", "x" * 500]
)
def test_wrong_names_are_refused(name: str) -> None:
    base: dict[str, Any] = {"node_id": "n_v1", "type": "function", "intent": "try", "outputs": {"r": "integer"}}
    step = {"operation": "arithmetic", "expression": "1", "output": "r"}
    for node in (
        base | {"inputs": {name: "integer"}, "flow": [step]},
        base | {"outputs": {name: "integer"}, "flow": [step]},
        base | {"flow": [step, {**step, "output": name}]},
        base | {"types": {name: {"base": "integer"}}, "flow": [step]},
        base | {"flow": [step, {"operation": "for_each", "input": "[1]", "as": name, "steps": [step]}]},
    ):
        assert judged(written(node)) is None, node


# ---------------------------------------------------------------- SQL
@pytest.mark.parametrize("text", ["log; DROP TABLE log", "log (n) VALUES (1); --", 'log"; DROP TABLE log; --', "l'og"])
def test_names_of_tables_and_columns_are_no_sql(text: str, tmp_path: Path) -> None:
    """A hostile name of a table or a column is refused, or names nothing; the table is as it was."""
    database = tmp_path / "node.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE log (n INTEGER)")
        connection.execute("INSERT INTO log VALUES (7)")
        connection.commit()
    base = {"node_id": "n_v1", "type": "function", "intent": "try", "outputs": {"r": "integer"}}
    rights = {"security": {"capabilities_required": ["database.write.*", "database.read.*"]}}
    end = {"operation": "return", "return_success": {"r": 1}}
    steps: list[dict[str, Any]] = [
        {"operation": "database_write", "table": text, "data": {"n": 1}},
        {"operation": "database_write", "table": "log", "data": {text: 1}},
        {"operation": "database_update", "table": text, "where": {"n": 7}, "set": {"n": 1}},
        {"operation": "database_update", "table": "log", "where": {text: 7}, "set": {"n": 1}},
        {"operation": "database_update", "table": "log", "where": {"n": 7}, "set": {text: 1}},
        {"operation": "database_update", "table": "log", "where": text, "set": {"n": 1}},
    ]
    with vesper.Runtime(database=f"sqlite:///{database}", grant=["database.*"]) as runtime:
        for step in steps:
            node = judged(written(base | rights | {"flow": [step, end]}))
            if node is not None:
                runtime.execute(node, {})
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT n FROM log").fetchall() == [(7,)]


# ---------------------------------------------------------------- YAML
HEAD = "node_id: n_v1\ntype: function\nintent: try\noutputs: {r: integer}\n"
FLOW = "flow:\n  - {operation: arithmetic, expression: '1', output: r}\n"
LAUGHS = "documentation:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
REFUSED = {
    "tag of Python": HEAD + "documentation: {x: !!python/object/apply:os.system ['touch CANARY']}\n" + FLOW,
    "name of Python": HEAD + "documentation: {x: !!python/name:os.system }\n" + FLOW,
    "tag of its own": HEAD + "documentation: {x: !evil 1}\n" + FLOW,
    "binary": HEAD + "documentation: {x: !!binary AAAA}\n" + FLOW,
    "alias": HEAD + "documentation: {x: &a 1, y: *a}\n" + FLOW,
    "alias to itself": HEAD + "documentation: &a {x: *a}\n" + FLOW,
    "billion laughs": HEAD + LAUGHS + FLOW,
    "merge key": HEAD + "documentation: {a: &a {x: 1}, b: {<<: *a}}\n" + FLOW,
    "two documents": HEAD + FLOW + "---\n" + HEAD + FLOW,
    "deep lists": HEAD + "documentation: {x: " + "[" * 20_000 + "]" * 20_000 + "}\n" + FLOW,
    "deep maps": HEAD + "documentation: {x: " + "{a: " * 5_000 + "1" + "}" * 5_000 + "}\n" + FLOW,
    "deep blocks": HEAD + "documentation:\n" + "".join(" " * n + "a:\n" for n in range(1, 1_000)) + FLOW,
    "deep types": HEAD + "inputs: {x: " + "array<" * 5_000 + "integer" + ">" * 5_000 + "}\n" + FLOW,
    "huge integer": HEAD + f"documentation: {{x: {'9' * 100_000}}}\n" + FLOW,
    "huge exponent": HEAD + "documentation: {x: 1e999999999}\n" + FLOW,
    "key twice": HEAD + HEAD + FLOW,
    "key that is a list": HEAD + "documentation: {[1]: 2}\n" + FLOW,
    "control character": HEAD + "documentation: {x: \x07}\n" + FLOW,
    "large file": HEAD + FLOW + "# " + "x" * 1_100_000 + "\n",
    "many steps": HEAD + FLOW + FLOW.splitlines()[1].join(["\n"] * 1_200),
    "deep steps": HEAD + "flow: [" + "{operation: conditional, condition: 'true', then: [" * 40 + "]}" * 40 + "]\n",
    "bomb of templates": HEAD + f"flow: [{{operation: string_template, template: '{'{r}' * 300}', output: r}}]\n",
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", REFUSED)
def test_hostile_yaml_is_refused_soon(name: str) -> None:
    judged(HEAD + FLOW)
    with forbidden():
        node = judged(REFUSED[name])
    assert node is None
    assert has_errors(check_text(REFUSED[name]))


def test_texts_of_yaml_1_1_stay_texts() -> None:
    """`no`, `on`, times and octal numbers are what is written."""
    text = HEAD + "documentation: {a: no, b: on, c: 12:30:45, d: 0o17, e: 017, f: 1_000, g: .nan, h: =}\n" + FLOW
    data = vesper.load(text).document.data["documentation"]
    assert data["a"] == "no"
    assert data["b"] == "on"
    assert data["c"] == "12:30:45"
    assert data["d"] == "0o17"
    assert data["f"] == "1_000"
    assert data["g"] == ".nan"


# ---------------------------------------------------------------- sizes and times
def test_hostile_expressions_take_bounded_time() -> None:
    for piece in (
        "(",
        "[",
        "{",
        "-",
        "NOT ",
        "a.",
        "a[",
        "f(",
        "'",
        '"',
        "\\",
        "1",
        "a AND ",
        "FORALL x IN ",
        "{{",
        "}",
    ):
        for read in (parse_expression, parse_template):
            began = time.process_time()
            with suppress(LyraError):
                read(piece * (60_000 // len(piece)))
            assert time.process_time() - began < SECONDS_MAX, piece


@pytest.mark.parametrize("path", PATHS)
def test_patterns_take_bounded_time(path: str) -> None:
    flow = "flow:\n  - {operation: arithmetic, expression: \"matches(s, '(a+)+$')\", output: r}\n"
    node = vesper.load(
        "node_id: n_v1\ntype: function\nintent: match\ninputs: {s: string}\noutputs: {r: boolean}\n" + flow
    )
    began = time.process_time()
    outcome = vesper.execute(node, {"s": "a" * 5_000 + "b"}, path=path)
    assert time.process_time() - began < 10 * SECONDS_MAX
    assert outcome.outputs == {"r": False} or outcome.error.code == "resource_limit"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("-inf"),
    "decimal nan": Decimal("NaN"),
    "decimal snan": Decimal("sNaN"),
    "decimal infinity": Decimal("Infinity"),
    "deep list": nested(100_000),
    "a little too deep": nested(70),
    "object": object(),
    "function": len,
    "type": int,
    "complex": 1j,
    "key that is no text": {1: 2},
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", VALUES)
def test_hostile_inputs_are_invalid(name: str, path: str) -> None:
    """`any` takes what JSON has, and nothing else."""
    node = vesper.load(ECHO)
    outcome = vesper.execute(node, {"s": "", "m": {}, "v": VALUES[name]}, path=path)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.phase) == ("invalid_input", "input")


@pytest.mark.parametrize("path", PATHS)
def test_huge_numbers_are_invalid_soon(path: str) -> None:
    node = vesper.load(
        "node_id: n_v1\ntype: function\nintent: count\ninputs: {i: integer, d: decimal}\noutputs: {i: integer}\n"
        "flow:\n  - return_success: {i: '{i}'}\n"
    )
    began = time.process_time()
    for inputs in (
        {"i": 10**30_000, "d": 1},
        {"i": 1, "d": "9" * 100_000},
        {"i": 1, "d": "1e999999999999999999999"},
        {"i": 1, "d": "-1e-999999999999999999999"},
        {"i": 1, "d": Decimal("1e999999")},
        {"i": 1, "d": 10**20_000},
    ):
        outcome = vesper.execute(node, inputs, path=path)
        assert outcome.error is not None
        assert outcome.error.code == "invalid_input"
    assert time.process_time() - began < SECONDS_MAX
