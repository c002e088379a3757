"""Whether the test that an entry names is there and uses the entry: read from the source of the tests, none is run.

A test is `tests/FILE.py::NAME`, or a program with expectations, `tests/language/….vega`. What a test uses is its own
source and that of the functions, tables and fixtures of its module that it names, and of those they name, also in other
modules of `tests`. A parameter is used where a call gives it, by name or by position. A program uses the opcodes
that it is compiled to. That a test asserts the right thing is for its reader to say: see `claims.toml`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Final, NamedTuple

from lyra.errors import SourceError
from lyra.vega import compile as compile_vega
from lyra.vega.bytecode.opcodes import OPCODES
from verify.surface.entries import Entry

__all__ = ["ROOT", "Usage", "all_tests", "fault", "usage_of"]

ROOT: Final = Path(__file__).resolve().parents[2]
_WORD: Final = re.compile(r"-{0,2}\w[\w.-]*\w|-?\w")
_ASSERTS: Final = re.compile(r"^\s*assert\b|\braises\(", re.MULTILINE)
_PROGRAM_MARK: Final = "// expect"
_MANY_ARGUMENTS: Final = 1000  # a call with `*arguments` may give any position


class Calls(NamedTuple):
    """What the calls of one name give: the names of arguments, and how many by position."""

    names: frozenset[str]
    positions: int


class Usage(NamedTuple):
    """What a test uses: its text, and its calls by the short name of what is called."""

    text: str
    words: frozenset[str]
    calls: dict[str, Calls]
    lines: tuple[tuple[str, ...], ...]  # texts that stand side by side in a call or a list, as a command line's do
    asserts: bool

    def uses(self, entry: Entry) -> bool:
        if entry.kind in ("parameter", "agent"):
            return self._gives(entry)
        if entry.kind == "opcode":
            return not self.words.isdisjoint((entry.name, f"OP_{entry.name}"))
        if entry.kind == "config":
            return entry.name in self.text or self.words.issuperset(entry.name.split("."))
        if entry.kind in ("command", "flag"):
            return self._types(entry)
        if entry.kind == "error":
            code, error_class = entry.words
            return error_class in self.words or re.search(rf"""["'`\[]{code}["'`\]]""", self.text) is not None
        return all(word in self.words or (not word.isidentifier() and word in self.text) for word in entry.words)

    def _types(self, entry: Entry) -> bool:
        """A command line has the words of the command, and it or one that is put together with it the flag."""
        *path, last = entry.words if entry.kind == "flag" else (*entry.words, "")
        commands = [line for line in self.lines if _side_by_side(tuple(path), line)]
        return bool(commands) and (not last or any(last in line for line in self.lines))

    def _gives(self, entry: Entry) -> bool:
        """The call itself gives the argument, or another call does by name for a helper that hands it on."""
        function, argument = entry.words
        direct = self.calls.get(function)
        if direct and (argument in direct.names or (entry.position is not None and entry.position < direct.positions)):
            return True
        handed_on = any(argument in calls.names for calls in self.calls.values())
        return function in self.words and (handed_on or f'"{argument}"' in self.text)


class _Module:
    """One file of tests: its statements by the names they bind, and the imports from other files of tests."""

    def __init__(self, path: Path) -> None:
        source = path.read_text(encoding="utf-8")
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.statements: dict[str, ast.stmt] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        for statement in self.tree.body:
            for name in _bound(statement):
                self.statements[name] = statement
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").partition(".")[0] == "tests":
                for alias in statement.names:
                    self.imports[alias.asname or alias.name] = (statement.module or "", alias.name)

    @cached_property
    def tests(self) -> dict[str, ast.stmt]:
        found: dict[str, ast.stmt] = {}
        for statement in self.tree.body:
            if isinstance(statement, ast.ClassDef):
                members = (member for member in statement.body if _is_test(member))
                found.update({f"{statement.name}::{_name(member)}": member for member in members})
            elif _is_test(statement):
                found[_name(statement)] = statement
        return found

    def text(self, node: ast.stmt) -> str:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        return "\n".join(self.lines[first - 1 : node.end_lineno])


def _side_by_side(words: tuple[str, ...], line: tuple[str, ...]) -> bool:
    return any(line[at : at + len(words)] == words for at in range(len(line) - len(words) + 1))


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")


def _name(node: ast.stmt) -> str:
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return node.name


@cache
def _module(path: Path) -> _Module:
    return _Module(path)


def _path_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


# ---------------------------------------------------------------- what a test uses
def _reached(module: _Module, test: ast.stmt) -> Iterator[tuple[_Module, ast.stmt]]:
    """The test and every statement of a file of tests that it names, directly or not."""
    waiting: list[tuple[_Module, ast.stmt]] = [(module, test)]
    seen: set[int] = set()
    while waiting:
        home, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield home, node
        for name in _names_in(node):
            if name in home.statements:
                waiting.append((home, home.statements[name]))
            elif name in home.imports:
                other_name, bound = home.imports[name]
                path = _path_of(other_name)
                if path.exists() and bound in _module(path).statements:
                    waiting.append((_module(path), _module(path).statements[bound]))


@cache
def _parts(node: ast.stmt) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(node))


@cache
def _names_in(node: ast.stmt) -> frozenset[str]:
    names = {part.id for part in _parts(node) if isinstance(part, ast.Name)}
    return frozenset(names | {part.arg for part in _parts(node) if isinstance(part, ast.arg)})


@cache
def _calls_in(node: ast.stmt) -> tuple[tuple[str, frozenset[str], int], ...]:
    calls = []
    for call in (part for part in _parts(node) if isinstance(part, ast.Call)):
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        names = frozenset(keyword.arg for keyword in call.keywords if keyword.arg)
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        calls.append((name, names, _MANY_ARGUMENTS if starred else len(call.args)))
    return tuple(calls)


@cache
def _lines_in(node: ast.stmt) -> tuple[tuple[str, ...], ...]:
    lines = []
    for inner in _parts(node):
        values = inner.args if isinstance(inner, ast.Call) else getattr(inner, "elts", None)
        if values is not None:
            texts = [
                value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)
            ]
            line = [word.partition("=")[0] for text in texts for word in text.split()]
            is_json = isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") == "json"
            lines.append((*line, "--json") if is_json and line else tuple(line))  # how the runners ask for JSON
    return tuple(line for line in lines if line)


def exists(test: str) -> bool:
    """Return whether there is such a test."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if not path.exists():
        return False
    return _PROGRAM_MARK in _read(path) if path.suffix == ".vega" else name.rpartition("::")[2] in _test_names(path)


@cache
def _test_names(path: Path) -> frozenset[str]:
    """Return the names of the tests of a file, which need not be parsed for that."""
    return frozenset(re.findall(r"^ *(?:async )?def (test\w*)\(", _read(path), re.MULTILINE))


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def usage_of(test: str, *, alone: bool = False) -> Usage | None:
    """What a test uses, or None where there is no such test; `alone` leaves out what it reaches."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if not exists(test):
        return None
    if path.suffix == ".vega":
        return _program(_read(path), str(path))
    module = _module(path)
    node = module.tests.get(name)
    if node is None:
        return None
    reached = [(module, node)] if alone else list(_reached(module, node))
    texts = [_text_of(home, statement) for home, statement in reached]
    words = frozenset[str]().union(*(_words(text) for text in texts))
    text = "\n".join(texts)
    calls: dict[str, Calls] = {}
    for _, statement in reached:
        for function, names, positions in _calls_in(statement):
            known = calls.get(function, Calls(frozenset(), 0))
            calls[function] = Calls(known.names | names, max(known.positions, positions))
    lines = tuple(line for _, statement in reached for line in _lines_in(statement))
    return Usage(text, words, calls, lines, _ASSERTS.search(text) is not None)


@cache
def _text_of(module: _Module, statement: ast.stmt) -> str:
    return module.text(statement)


@cache
def _words(text: str) -> frozenset[str]:
    words = set(_WORD.findall(text.replace("\\n", " ")))  # a line break in a text is no letter
    return frozenset(words | {part for word in words for part in re.split(r"[.\s-]", word) if part})


def _program(text: str, path: str) -> Usage:
    return Usage(text, _words(text) | _opcodes(text, path), {}, (), asserts=True)


def _opcodes(text: str, path: str) -> frozenset[str]:
    try:
        program = compile_vega(text, path)
    except (SourceError, OSError):
        return frozenset()
    return frozenset(OPCODES[row[0]].name for function in program.functions for row in function.code)


def all_tests() -> list[str]:
    """Every test there is, by its id."""
    tests = [
        f"{path.relative_to(ROOT)}::{name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in _module(path).tests
    ]
    programs = sorted((ROOT / "tests" / "language").rglob("*.vega"))
    return tests + [str(path.relative_to(ROOT)) for path in programs if _PROGRAM_MARK in path.read_text("utf-8")]


def fault(entry: Entry, test: str) -> str:
    """What is wrong with a claim; "" where nothing is."""
    usage = usage_of(test)
    if usage is None:
        return f"{entry.id}: there is no test {test}"
    if not usage.asserts:
        return f"{entry.id}: {test} asserts nothing"
    return "" if usage.uses(entry) else f"{entry.id}: {test} does not use it"
