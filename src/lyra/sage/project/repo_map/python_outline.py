"""The symbols of a Python file, by Python's own parser: classes, their methods, functions, and constants of modules.

Signatures are taken from the source, which is much quicker than writing the tree as text again.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence

from lyra.sage.project.repo_map.symbol import MapSymbol, one_line

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_symbols(text: str) -> list[MapSymbol]:
    """The symbols in the order of the source; SyntaxError and others for a file that Python cannot read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in other people's files
        tree = ast.parse(text)
    return list(_symbols(tree.body, text.split("\n"), 0))


def _symbols(body: Iterable[ast.stmt], lines: Sequence[str], depth: int) -> Iterator[MapSymbol]:
    for node in body:
        if isinstance(node, _Definition):
            yield MapSymbol(node.name, one_line(_head(node, lines)), node.lineno, depth)
            if isinstance(node, ast.ClassDef) and depth == 0:
                yield from _symbols(node.body, lines, 1)
        elif isinstance(node, (ast.If, ast.Try)) and depth == 0:  # of another platform, or of typing
            yield from _symbols(_branches(node), lines, depth)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and depth == 0:
            yield from _constants(node)


def _branches(node: ast.If | ast.Try) -> list[ast.stmt]:
    return [*node.body, *node.orelse] if isinstance(node, ast.If) else [*node.body, *node.orelse, *node.finalbody]


def _constants(node: ast.Assign | ast.AnnAssign) -> Iterator[MapSymbol]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if isinstance(target, ast.Name) and target.id[:1].isupper():
            yield MapSymbol(target.id, target.id, node.lineno)


def _head(node: _Definition, lines: Sequence[str]) -> str:
    """The source from `def` or `class` to the colon before the body."""
    first = node.body[0]
    decorators = getattr(first, "decorator_list", ())
    end = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    start = node.lineno
    if end == start:  # `def f(): return 1`; the columns of the parser count bytes
        line = lines[start - 1].encode()
        return line[node.col_offset : first.col_offset].decode("utf-8", "replace").rstrip().removesuffix(":")
    whole = "\n".join(lines[start - 1 : end - 1])
    return whole[: whole.rindex(":")] if ":" in whole else whole
