"""The types of options name every option: a new one that they lack would be an error to type checkers."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import lyra.agents.agent
from lyra import Kernel
from lyra.agents.declaration.agent import AgentDeclaration
from lyra.kernel.kernel import KernelOptions


def test_options_of_a_kernel():
    """All but the budget, which `lyra.run` takes itself."""
    assert set(KernelOptions.__annotations__) == set(inspect.signature(Kernel).parameters) - {"budget"}


def test_settings_of_an_agent():
    """All but the name and the output, which the overloads have. The class is there for type checkers alone."""
    tree = ast.parse(Path(lyra.agents.agent.__file__).read_text())
    (settings,) = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "Settings")
    fields = {
        node.target.id
        for node in settings.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert fields == set(inspect.signature(AgentDeclaration).parameters) - {"name", "output"}
