"""Nodes by file or id, and the inputs that a command line gives them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import Invocation
from lyra.cli.render import printable
from lyra.cli.vesper.setup import stored_nodes
from lyra.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lyra.vesper.nodes import Node

__all__ = ["input_options", "inputs_of", "node_named", "say_problems"]


def node_named(name: str) -> Node:
    """A node by its file, or by its id among the files of this folder and `nodes/`, then among those of the store."""
    from lyra.vesper.nodes import load
    from lyra.vesper.repository.folders import NODES_FOLDER, Repository

    path = Path(name)
    if path.suffix == ".vsp" or path.exists():
        return load(path)
    node = Repository([Path(), Path(NODES_FOLDER)]).find(name)
    if node is None:
        node = stored_nodes(click.get_current_context().ensure_object(Invocation)).find(name)
    if node is None:
        hint = "name a .vsp file, or the id of a node in this folder, in `nodes/` or in the store"
        raise ConfigError(f"no node {name!r} here", hint=hint, key="NODE")
    return node


def input_options(function: Any) -> Any:
    """`-i NAME=VALUE` and `--input-json`."""
    function = click.option(
        "-i",
        "--input",
        "pairs",
        metavar="NAME=VALUE",
        multiple=True,
        help="An input; VALUE is JSON where it can be read as JSON, else text.",
    )(function)
    return click.option("--input-json", "document", metavar="JSON", help="All inputs as one JSON object.")(function)


def inputs_of(node: Node, pairs: Iterable[str], document: str | None) -> dict[str, Any]:
    """The inputs of a command line. Numbers with a point are decimals; what a text input is given stays text."""
    inputs: dict[str, Any] = {}
    if document is not None:
        inputs = _object(document)
    texts = _text_inputs(node)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{pair!r} is no NAME=VALUE", key="--input")
        inputs[name] = value if name in texts else _value(value)
    return inputs


def _text_inputs(node: Node) -> frozenset[str]:
    from lyra.vesper.check.judge import program_of
    from lyra.vesper.values.types import BYTES, STRING, TIMESTAMP, EnumType, without_null

    kinds = {entry.name: without_null(entry.type) for entry in program_of(node).inputs}
    return frozenset(
        name for name, kind in kinds.items() if kind in (STRING, TIMESTAMP, BYTES) or isinstance(kind, EnumType)
    )


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--input-json is no JSON: {error}", key="--input-json") from None
    if not isinstance(data, dict):
        raise ConfigError("--input-json is no object", hint="""such as '{"amount": 5}'""", key="--input-json")
    return data


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text


def say_problems(error: SourceError) -> None:
    """Mistakes of a file on stderr, as compilers show them."""
    problems = error.fields.get("problems") or ()
    for problem in problems:
        render = getattr(problem, "render", None)
        click.echo(printable(render() if render is not None else str(problem)), err=True)
    if not problems:
        click.echo(printable(error.render()), err=True)
