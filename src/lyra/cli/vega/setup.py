"""What a run is set up with from the command line: its budget, its kernel and its MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.cli.vega.nodes import node_host
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lyra.cli.app import Invocation
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
