"""What a run is set up with from the command line: its budget, its kernel, its MCP servers and its imported nodes.

A durable run keeps the executions of its nodes in a space of its own, beside the run's, so that a node goes on after a
crash together with the run. `--database` and `--provider` are not kept in the run, since they may hold passwords; they
are given to `vega resume` again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.arguments import provider_addresses
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lyra.cli.app import Invocation
    from lyra.core.imported_node import NodeHost
    from lyra.kernel.kernel import Kernel
    from lyra.store.space import Space
    from lyra.vega.bytecode.program import Program


def dollars(text: str) -> Any:
    """The amount of `--budget`: `$0.50` or `0.50`."""
    from lyra.core.budgets.money import Money

    try:
        return Money.parse(text)
    except ConfigError as mistake:
        hint = "write dollars, such as '$0.50' (in quotes, or the shell takes the $)"
        raise ConfigError(f"--budget: {mistake.message}", hint=hint, key="--budget") from None


def kernel_of(invocation: Invocation) -> Kernel:
    """A kernel with the settings of a run, for a command that listens to its Events."""
    from lyra.kernel.kernel import Kernel
    from lyra.vega.runtime.run import MAILBOX_MESSAGES

    return Kernel.from_config(invocation.config, store="memory", mailbox_messages_max=MAILBOX_MESSAGES)


def settings_of(invocation: Invocation) -> dict[str, str]:
    """The settings of a run that has a kernel of its own, and is not durable: the flags. The files and variables are
    read with them, so that the user's budget and rights hold."""
    _ = invocation.config  # a mistake in one of them is reported before anything runs
    given = dict(flag.split("=", 1) for flag in invocation.flags)
    return {**given, "kernel.store": "memory"}


async def with_servers(
    invocation: Invocation,
    program: Program,
    options: dict[str, Any],
    main: Callable[[], Awaitable[Any]],
    space: Space | None = None,
) -> Any:
    """Await `main` with what the program imports: the MCP servers of lyra.toml, started, and its nodes."""
    with node_host(invocation, program, space) as nodes:
        if nodes is not None:
            options["nodes"] = nodes
        if not any(kind == "mcp" for kind, *_ in program.imports):
            return await main()
        from lyra.mcp import McpServers

        async with McpServers.load(invocation.config) as servers:
            options["servers"] = servers
            return await main()


# ---------------------------------------------------------------- nodes

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
