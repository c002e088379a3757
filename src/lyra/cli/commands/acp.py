"""`lyra acp` and `sage acp`: an agent of one's own, or Sage, in an editor, by the Agent Client Protocol.

lyra acp --agent NAME                    one of this folder: .lyra/agents/NAME.md, or the user's own
lyra acp --agent FILE.py:NAME            one of a Python file that declares it
lyra acp --load FILE.py --agent NAME     one of those that setup(kernel) of the file makes known
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.arguments import object_of, setup_of
from lyra.cli.commands.agent import options_of, session_options, with_servers
from lyra.cli.commands.trust import ask_for_trust
from lyra.cli.process_io import check_editor, serve_editor
from lyra.cli.render import note
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.agents.agent import Agent
    from lyra.kernel.kernel import Kernel
    from lyra.sage.acp import SessionServers


@click.command(cls=CliCommand, uses_trust=True)
@click.option(
    "--agent",
    "name",
    metavar="NAME|FILE.py:NAME",
    help="The agent to serve: of this folder (.lyra/agents/NAME.md), of the loaded file, or of another file.",
)
@click.option(
    "--load",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.py",
    help="Run setup(kernel) of this file: it makes the agents known.",
)
@click.option("--db", metavar="FILE|URL", help="The store; with a file, sessions can be loaded again.")
@click.pass_obj
def acp(invocation: Invocation, /, *, name: str | None, load: str | None, db: str | None) -> None:
    """Serve an agent of yours to an editor, by the Agent Client Protocol."""
    check_editor("lyra acp")
    if db is not None:
        invocation.flags.append(f"kernel.store={db}")
    if load is not None:
        setup = setup_of(load, "kernel")
    elif name is not None and name.rpartition(":")[0].endswith(".py"):
        # A function that makes the Agent of FILE:NAME known, and the name of that agent.
        from lyra.agents.agent import Agent

        agent = object_of(name)
        if not isinstance(agent, Agent):
            raise ConfigError(f"--agent {name} is no Agent", key="--agent")
        setup, name = lambda kernel: kernel.register(agent), agent.name
    else:
        ask_for_trust(invocation, os.curdir, rules=True)
        asyncio.run(_serve_of_folder(invocation, os.path.realpath(os.curdir), name))
        return
    asyncio.run(_serve(invocation, setup, name))


async def _serve(invocation: Invocation, setup: Callable[[Any], Any], name: str | None) -> None:
    from lyra.agents.acp.agent_sessions import AgentSessions
    from lyra.kernel.kernel import Kernel

    async with Kernel.from_config(invocation.config) as kernel:
        prepared = setup(kernel)
        if hasattr(prepared, "__await__"):
            await prepared
        agent = _agent_of(kernel, name)
        servers = _session_servers(invocation)
        agent.sources = (*agent.sources, servers)
        kernel.register(agent)  # sessions of the store continue
        await serve_editor(AgentSessions(kernel, agent, servers=servers))


async def _serve_of_folder(invocation: Invocation, folder: str, name: str | None) -> None:
    """Serve the agent that a Markdown file of a folder, of the user or of a plugin declares."""
    import msgspec

    from lyra.agents.acp.agent_sessions import AgentSessions
    from lyra.agents.headless.options import HeadlessOptions
    from lyra.kernel.kernel import Kernel
    from lyra.sage.agent.file_agent import FileAgent, agent_definition
    from lyra.sage.extensions.extensions import Extensions

    options = HeadlessOptions(folder=folder, attended=True, trusted=invocation.trusts_folder)
    extensions = Extensions(folder, trusted=options.trust)
    definition = agent_definition(name, extensions)
    async with AsyncExitStack() as stack:
        if FileAgent.uses_servers(definition):
            options = await stack.enter_async_context(with_servers(invocation, options, extensions.servers()))
        servers = _session_servers(invocation) if FileAgent.uses_servers(definition) else None
        if servers is not None:
            options = msgspec.structs.replace(options, tools=(*options.tools, servers))
        served = FileAgent(definition, extensions, options, invocation.config)
        for sentence in served.notes:
            note(f"warning: {sentence}")
        kernel = await stack.enter_async_context(Kernel.from_config(invocation.config))
        served.attach(kernel)
        kernel.register(served.agent)  # sessions of the store continue
        sessions = AgentSessions(
            kernel, served.agent, title=definition.name, folder=served.folder, grant=served.grant, servers=servers
        )
        await serve_editor(sessions)


def _session_servers(invocation: Invocation) -> SessionServers:
    """Return the MCP servers that the editor hands over, by the rules that Sage has for them."""
    from lyra.agents.headless.options import HeadlessOptions
    from lyra.agents.headless.setup import setup_of as headless_setup
    from lyra.sage.acp import SessionServers

    def find_denied(folder: str) -> Any:
        return headless_setup(HeadlessOptions(folder=folder, trusted=invocation.trusts_folder)).permissions.denied

    return SessionServers(find_denied)


def _agent_of(kernel: Kernel, name: str | None) -> Agent[Any]:
    from lyra.core.checking.check import did_you_mean
    from lyra.server.http.directory import AgentDirectory

    known = AgentDirectory(kernel).agents()
    agents: dict[str, Any] = {row.name: row.declaration for row in known.values() if row.declaration is not None}
    if name is None and len(agents) == 1:
        name = next(iter(agents))
    if name in agents:
        agent: Agent[Any] = agents[name]
        return agent
    near = did_you_mean(name or "", agents)
    listed = f"there are: {', '.join(agents) or 'none: setup(kernel) registers one, such as kernel.register(agent)'}"
    what = f"there is no agent {name!r}" if name else "say which agent: --agent NAME"
    raise ConfigError(what, hint=f"did you mean {near!r}? {listed}" if near else listed, key="--agent")


@click.command("acp", cls=CliCommand, uses_trust=True)
@session_options
@click.pass_context
def sage_acp(ctx: click.Context, /, **given: Any) -> None:
    """Work in an editor: speak the Agent Client Protocol on stdin and stdout."""
    invocation = ctx.ensure_object(Invocation)
    check_editor("sage acp")
    import msgspec

    options = msgspec.structs.replace(options_of(given), trusted=invocation.trusts_folder)

    async def serve() -> None:
        from lyra.sage.acp import SageSessions

        await serve_editor(SageSessions(options, settings=invocation.flags))

    asyncio.run(serve())
