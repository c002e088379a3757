"""Vesper: nodes with contracts, run by two independent paths and moved from one to the other on evidence.

    from lyra import vesper

    node = vesper.load("payment_handler.vsp")
    outcome = vesper.execute(node, {"amount": "99.99"}, path="direct")

A node is a YAML file: typed inputs and outputs, contracts, a flow of steps. `nodes` reads it, `check` judges it and
gives its typed IR, `python` and `direct` run that, each with code of its own. `evidence` compares them, `runtime` runs
nodes in a kernel, in the mode that the evidence allows. Everything is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra._imports import on_first_use

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.faces import ImportableNodes
    from lyra.vesper.runtime.runtime import Runtime
    from lyra.vesper.values.outcome import Outcome

__all__ = ["ImportableNodes", "Node", "Outcome", "Runtime", "compile", "execute", "load"]

_PATHS = ("python", "direct", "reference")


def load(source: str | Path) -> Node:
    """Return the node of a file, or of a text with more than one line; SourceError with all mistakes in
    `fields["problems"]`."""
    from lyra.vesper.check.judge import program_of
    from lyra.vesper.nodes import load as read

    node = read(source)
    program_of(node)
    return node


def execute(node: Node, inputs: Mapping[str, Any], path: str = "python") -> Outcome:
    """Execute a node on one path, with no effects: a node that acts outside is denied. See `Runtime` for those."""
    from lyra.errors import ConfigError
    from lyra.vesper.runtime.paths import execute_once

    if path not in _PATHS:
        raise ConfigError(f"no path {path!r}", hint=f"one of {', '.join(_PATHS)}", key="path")
    return execute_once(node, inputs, path)


def compile(node: Node, path: str = "python") -> Callable[..., dict[str, Any]]:  # noqa: A001 - as in `re.compile`
    """Return the node as a function of its inputs, in declared order or by name; it gives the outputs or raises."""
    from lyra.vesper.runtime.paths import function_of

    return function_of(node, path)


if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "runtime.runtime": "Runtime",
            "runtime.faces": "ImportableNodes",
            "nodes": "Node",
            "values.outcome": "Outcome",
        },
    )
