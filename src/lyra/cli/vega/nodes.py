"""What a program's imported nodes are executed with: a database, the addresses of providers, a journal, their modes.

A durable run keeps the executions of its nodes in a space of its own, beside the run's, so that a node goes on after a
crash together with the run. `--database` and `--provider` are not kept in the run, since they may hold passwords; they
are given to `vega resume` again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.provider_addresses import provider_addresses

if TYPE_CHECKING:
    from lyra.cli.app import Invocation
    from lyra.core.imported_node import NodeHost
    from lyra.store.space import Space
    from lyra.vega.bytecode.program import Program


_SUFFIX: Final = ".nodes"
_NAME_MAX: Final = 64


def node_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--database` and `--provider`, for imported nodes."""
    function = click.option("--database", metavar="URL", help="Imported nodes: sqlite:///FILE or postgresql://…")(
        function
    )
    return click.option(
        "--provider",
        "providers",
        metavar="NAME=URL",
        multiple=True,
        help="Imported nodes: the address behind a provider's name.",
    )(function)


def remember_node_options(invocation: Invocation, database: str | None, providers: Iterable[str]) -> None:
    """Check the options of this command, and keep them for `node_host`."""
    invocation.node_options = {"database": database, "providers": provider_addresses(providers)}


@contextmanager
def node_host(invocation: Invocation, program: Program, space: Space | None = None) -> Iterator[NodeHost | None]:
    """The host of the nodes that a program imports; None where it imports none. `space` is that of a durable run."""
    if not any(kind == "node" for kind, *_ in program.imports):
        yield None
        return
    from lyra.store.space import Space
    from lyra.vesper.runtime.faces import ImportableNodes

    def store() -> Space:
        assert space is not None
        return Space(space.path, _space_name(space.name))

    target = invocation.config.store_target()
    nodes = ImportableNodes(
        "memory" if space is None else store,
        modes_of=target.removeprefix("sqlite://"),
        results=invocation.config.vesper.results.reveal(),
        **invocation.node_options,
    )
    try:
        yield nodes
    finally:
        nodes.close()


def _space_name(run: str) -> str:
    if len(run) + len(_SUFFIX) <= _NAME_MAX:
        return f"{run}{_SUFFIX}"
    import hashlib

    return f"{run[:32]}.{hashlib.sha256(run.encode()).hexdigest()[:16]}{_SUFFIX}"
