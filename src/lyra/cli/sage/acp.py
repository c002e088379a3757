"""`sage acp`: speaks the Agent Client Protocol with an editor on stdin and stdout."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.commands.agent import options_of, session_options
from lyra.cli.editor_stdio import check_editor, serve_editor


@click.command(cls=CliCommand, uses_trust=True)
@session_options
@click.pass_context
def acp(ctx: click.Context, /, **given: Any) -> None:
    """Work in an editor: speak the Agent Client Protocol on stdin and stdout."""
    invocation = ctx.ensure_object(Invocation)
    check_editor("sage acp")
    import msgspec

    options = msgspec.structs.replace(options_of(given), trusted=invocation.trusts_folder)
    asyncio.run(_serve(options, invocation.flags))


async def _serve(options: Any, settings: list[str]) -> None:
    from lyra.sage.acp.agent import SageAcpAgent

    await serve_editor(SageAcpAgent(options, settings=settings))
