"""`sage acp`: speaks the Agent Client Protocol with an editor on stdin and stdout."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.commands.agent import options_of, session_options
from lyra.cli.render import note
from lyra.errors import ConfigError

__all__ = ["acp"]


@click.command(cls=CliCommand, uses_trust=True)
@session_options
@click.pass_context
def acp(ctx: click.Context, /, **given: Any) -> None:
    """Work in an editor: speak the Agent Client Protocol on stdin and stdout."""
    invocation = ctx.ensure_object(Invocation)
    try:
        import acp as _protocol  # noqa: F401
    except ModuleNotFoundError as missing:
        raise ConfigError(
            "the Agent Client Protocol needs a package that is not installed",
            hint="pip install 'lyra-agents[acp]'",
            key="acp",
        ) from missing
    import msgspec

    if sys.stdin is None or sys.stdout is None:
        raise ConfigError("stdin or stdout is closed: an editor speaks on them", key="acp")
    if sys.stdin.isatty():
        note("sage acp is started by an editor, and waits for its JSON lines; Ctrl-D ends it. A session here: sage")
    options = msgspec.structs.replace(options_of(given), trusted=invocation.trusts_folder)
    asyncio.run(_serve(options, invocation.flags))


async def _serve(options: Any, settings: list[str]) -> None:
    from acp import run_agent

    from lyra.cli.stdin_lines import stdin_lines
    from lyra.cli.stdout_thread import StdoutThread
    from lyra.sage.acp.agent import SageAcpAgent
    from lyra.sage.acp.json_rpc_lines import LINE_BYTES_MAX, JsonRpcLines

    lines = stdin_lines(sys.stdin.fileno(), cut_to_bytes=LINE_BYTES_MAX)
    agent = SageAcpAgent(options, settings=settings)
    try:
        await run_agent(agent, JsonRpcLines(lines, StdoutThread(sys.stdout.fileno())), use_unstable_protocol=True)
    finally:
        await agent.close()
