"""The small changes that can be made to a file: each is a piece of its source and another piece in its place.

A change makes a program that still parses and does something else: a comparison with its neighbour, a condition turned
around, `and` for `or`, another number, a statement left out. Texts, types and what is only said in an error are left
alone.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Mutation", "mutations_of"]

_COMPARISONS: Final = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_SUMS: Final = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+")}


class Mutation(NamedTuple):
    """In `file`, the bytes from `start` to `end` become `after`."""

    file: Path
    line: int
    start: int
    end: int
    before: str
    after: str
    function: str  # the qualified name of the outermost function around it; "" where there is none
    key: str  # the same for the same change while its function stays as it is

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.before}` → `{self.after}`"


class _Finder(ast.NodeVisitor):
    """Collects the changes of one file, with the function around each."""

    def __init__(self, file: Path, source: bytes) -> None:
        self.file = file
        self.source = source
        self.found: list[Mutation] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._around: list[str] = []
        self._function = ""
        self._seen: dict[str, int] = {}

    # ---------------------------------------------------------------- places
    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def _add(self, line: int, start: int, end: int, after: str) -> None:
        before = self.source[start:end].decode()
        text = f"{self.file}|{'.'.join(self._around)}|{before}|{after}"
        self._seen[text] = self._seen.get(text, 0) + 1
        key = hashlib.sha256(f"{text}|{self._seen[text]}".encode()).hexdigest()
        self.found.append(Mutation(self.file, line, start, end, before, after, self._function, key))

    def _between(self, left: ast.expr, right: ast.expr, before: str, after: str) -> None:
        """The operator between two expressions."""
        start, end = self._end(left), self._begin(right)
        at = self.source[start:end].find(before.encode())
        if at >= 0 and self.source[start:end].count(b"#") == 0:
            self._add(left.end_lineno or left.lineno, start + at, start + at + len(before), after)

    # ---------------------------------------------------------------- what is left alone
    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        self._around.append(node.name)
        outermost = not self._function
        if outermost:
            self._function = ".".join(self._around)
        for default in (*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._around.pop()
        if outermost:
            self._function = ""

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._around.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._around.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Says what is known already."""

    # ---------------------------------------------------------------- what is changed
    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node.lineno, self._begin(node), self._end(node), "pass")

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._turn_around(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._turn_around(node.test)
        self.generic_visit(node)

    def _turn_around(self, test: ast.expr) -> None:
        if not isinstance(test, (ast.Compare, ast.NamedExpr)):  # comparisons have a change of their own
            text = self.source[self._begin(test) : self._end(test)].decode()
            self._add(test.lineno, self._begin(test), self._end(test), f"(not ({text}))")

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            self._between(node.left, node.comparators[0], *_COMPARISONS[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if len(node.values) == 2:
            words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            self._between(node.values[0], node.values[1], *words)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = any(isinstance(side, (ast.JoinedStr, ast.Constant)) for side in (node.left, node.right)) and not all(
            isinstance(side.value, (int, float)) for side in (node.left, node.right) if isinstance(side, ast.Constant)
        )
        if type(node.op) in _SUMS and not is_text:
            self._between(node.left, node.right, *_SUMS[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node.lineno, self._begin(node), self._end(node), str(not node.value))
        elif isinstance(node.value, int):
            self._add(node.lineno, self._begin(node), self._end(node), str(node.value + 1))

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, (ast.Call, ast.Await)):
            self._add(node.lineno, self._begin(node), self._end(node), "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._add(node.lineno, self._begin(node), self._end(node), "return None")
        self.generic_visit(node)


def mutations_of(file: Path, root: Path) -> Iterator[Mutation]:
    """Every change of a file; `file` is below `root`, and named so in the changes."""
    source = (root / file).read_bytes()
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    yield from finder.found
