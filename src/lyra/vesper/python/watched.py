"""Generated code that tells a debugger about its steps.

The generator writes a comment before each step. In a tree that is watched, a call takes the place of the comment and
hands over the name of the step and the local variables. Trees that are not watched have no such call, so watching costs
nothing where it is off.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from lyra.vesper.ir import NodeProgram, Step
from lyra.vesper.python.kinds import parts
from lyra.vesper.python.layout import SourceComment
from lyra.vesper.python.syntax import call, name

WATCH_NAME: Final = "_watch_step"
PythonWatch = Callable[[str, dict[str, Any]], None]  # the name of a step, and the local variables


def watch_steps(tree: ast.Module, program: NodeProgram) -> None:
    """Put a call before each step."""
    names = {" ".join(part.name.split()): part.name for part in parts(program) if isinstance(part, Step)}
    _Watcher(names).visit(tree)
    ast.fix_missing_locations(tree)


class _Watcher(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_SourceComment(self, node: SourceComment) -> ast.stmt:
        step = self._names.get(node.text)
        if step is None:
            return node
        return ast.Expr(call(name(WATCH_NAME), ast.Constant(step), call(name("locals"))))
