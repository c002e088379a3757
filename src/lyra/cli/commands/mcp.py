"""`lyra mcp`: look at MCP servers, try one, agree to what a project names, log in, and offer Lyra's tools as one.

What a server is and what becomes of it is `lyra.mcp`; here it is shown and asked about. Everything that a server or a
project wrote is printed with its control characters escaped. `serve` speaks MCP on stdout and prints nothing else
there.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.arguments import object_of
from lyra.cli.render import document, note, printable, table
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.mcp import McpServers, ServerSettings, ServerState
    from lyra.mcp.serve import Offer
    from lyra.mcp.tools import Offered


@click.group(cls=CommandGroup)
def mcp() -> None:
    """Manage MCP servers, and serve Lyra's tools over MCP."""


def _servers(invocation: Invocation, **options: Any) -> McpServers:
    from lyra.mcp import McpServers

    servers = McpServers.load(invocation.config, os.getcwd(), **options)
    if servers.warning:
        note(f"warning: {servers.warning}")
    return servers


# ---------------------------------------------------------------- looking
@mcp.command("list", uses_trust=True)
@json_option
@click.pass_obj
def list_servers(invocation: Invocation, *, as_json: bool) -> None:
    """List the servers that lyra.toml and .mcp.json name; starts none of them."""
    states = _servers(invocation).expected()
    if as_json:
        document([state.to_data() for state in states])
        return
    if not states:
        note("no MCP server: name one in lyra.toml ([mcp.servers.NAME]) or in .mcp.json")
        return
    table(
        ("server", "state", "from", "what"),
        [(server.name, server.state, server.origin, _what(server)) for server in states],
    )


def _what(state: ServerState) -> str:
    """Its command or URL; of an entry that cannot be read, why."""
    return state.line or (state.failure.message if state.failure is not None else "")


@mcp.command(uses_trust=True)
@click.argument("name")
@json_option
@click.pass_context
def test(ctx: click.Context, name: str, *, as_json: bool) -> None:
    """Connect to the server NAME and show what it offers."""
    state = asyncio.run(_test(ctx.ensure_object(Invocation), name))
    if as_json:
        document(state.to_data())
    else:
        _show(state)
    ctx.exit(0 if state.state == "connected" else 1)


async def _test(invocation: Invocation, name: str) -> ServerState:
    async with _servers(invocation) as servers:
        return (await servers.start(name))[0]


def _show(state: ServerState) -> None:
    click.echo(f"{printable(state.name)}: {state.state}" + (f" (MCP {state.protocol})" if state.protocol else ""))
    if state.failure is not None:
        click.echo(f"  {state.failure.kind}: {printable(state.failure.message)}")
    for word, names in (("tool", state.tools), ("withheld", state.withheld), ("left out", state.skipped)):
        for name in names:
            click.echo(f"  {word}: {printable(name)}")


# ---------------------------------------------------------------- agreeing
@mcp.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Approve without a question.")
@click.pass_context
def approve(ctx: click.Context, name: str, *, yes: bool) -> None:
    """Approve the server NAME of a project and its tools as they are now."""
    state = asyncio.run(_approve(ctx.ensure_object(Invocation), name, yes=yes))
    _show(state)
    ctx.exit(0 if state.state == "connected" else 1)


async def _approve(invocation: Invocation, name: str, *, yes: bool) -> ServerState:
    async def consent(settings: ServerSettings) -> bool:
        click.echo(f"{printable(settings.place or settings.origin)} names the MCP server {printable(settings.name)}:")
        for line in settings.described():
            click.echo(f"  {printable(line)}")
        return _ask_agreement("Start it?", yes=yes)

    async def reapprove(server: str, tool: Offered) -> bool:
        click.echo(f"{printable(server)}: the tool {printable(tool.name)} now says:")
        click.echo(f"  {printable(tool.description)}")
        click.echo("and of its arguments, which a model reads as well:")
        for line in json.dumps(tool.schema, indent=2, ensure_ascii=False).splitlines():
            click.echo(f"  {printable(line)}")
        return _ask_agreement("Use it?", yes=yes)

    async with _servers(invocation, consent=consent, reapprove=reapprove) as servers:
        return (await servers.start(name))[0]


def _ask_agreement(question: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        note("stdin is not a terminal, so there is no one to ask; --yes agrees")
        return False
    return click.confirm(question, default=False)


@mcp.command()
@click.argument("name")
@click.pass_obj
def revoke(invocation: Invocation, name: str) -> None:
    """Withdraw the approval of the server NAME."""
    from lyra.mcp import Approvals

    servers = _servers(invocation)
    had = Approvals.of_user().forget(servers.fingerprint(name))
    click.echo(f"{printable(name)}: {'taken back' if had else 'there was nothing to take back'}")
    if servers[name].settings.folder_trusted and not servers[name].settings.trusted:
        note("the folder is trusted, and its servers with it; `lyra trust revoke` takes that back")


@mcp.command()
@click.argument("name")
@click.pass_context
def login(ctx: click.Context, name: str) -> None:
    """Log in to the server NAME, which has auth.kind = "oauth"."""
    state = asyncio.run(_login(ctx.ensure_object(Invocation), name))
    _show(state)
    ctx.exit(0 if state.state == "connected" else 1)


async def _login(invocation: Invocation, name: str) -> ServerState:
    from lyra.core.user_folders import user_folder
    from lyra.mcp.oauth import TokenStore

    async def authorize(server: str, url: str) -> None:
        click.echo(f"Open this page to log in to {printable(server)}:\n{printable(url)}", err=True)

    async with _servers(invocation, authorize=authorize, start_s=300.0) as servers:
        settings = servers[name].settings
        if settings.auth_kind != "oauth":
            raise ConfigError(
                f"MCP server {name} has no login", hint='set auth = {kind = "oauth"}', place=settings.place
            )
        TokenStore(user_folder(os.environ), servers.fingerprint(name)).forget()
        return (await servers.start(name))[0]


# ---------------------------------------------------------------- serving
@mcp.command(uses_trust=True)
@click.option(
    "--tools",
    "names",
    metavar="NAMES",
    multiple=True,
    help="Built-in tools to offer, separated by commas; default: all.",
)
@click.option("--agent", "own", metavar="FILE:NAME", multiple=True, help="An Agent, Tool or function of a Python file.")
@click.option("--allowed-tools", "allow", metavar="RULE", multiple=True, help="A rule that allows. May be repeated.")
@click.option("--disallowed-tools", "deny", metavar="RULE", multiple=True, help="A rule that denies. May be repeated.")
@click.option("--http", "port", metavar="PORT", type=click.IntRange(1, 65535), help="Serve HTTP on this machine.")
@click.option(
    "--token-env",
    metavar="VARIABLE",
    help="Environment variable with the clients' token; without it a token is generated and printed.",
)
@click.pass_obj
def serve(
    invocation: Invocation,
    *,
    names: tuple[str, ...],
    own: tuple[str, ...],
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    port: int | None,
    token_env: str | None,
) -> None:
    """Offer Lyra's tools to an MCP client, over stdio unless --http says otherwise."""
    try:
        from lyra.mcp.serve import Offer, OfferOptions
    except ImportError:
        raise ConfigError("MCP needs the mcp extra", hint="pip install 'lyra-agents[mcp]'") from None

    chosen = tuple(name.strip() for text in names for name in text.split(",") if name.strip())
    options = OfferOptions(os.getcwd(), chosen, tuple(object_of(text) for text in own), allow, deny)
    offer = Offer(options, invocation.config)
    if port is None:
        asyncio.run(_serve_stdio(offer))
    else:
        asyncio.run(_serve_http(offer, port, _token(token_env)))


async def _serve_stdio(offer: Offer) -> None:
    from lyra.mcp.serve import serve_stdio

    async with offer:
        await serve_stdio(offer)


async def _serve_http(offer: Offer, port: int, token: str) -> None:
    from lyra.mcp.serve import serve_http

    async with offer:
        note(f"MCP at http://127.0.0.1:{port}/mcp")
        await serve_http(offer, port, token)


def _token(variable: str | None) -> str:
    if variable is None:
        from lyra.core.ids import Entropy

        token = Entropy().token()
        note(f"token: {token}")
        return token
    token = os.environ.get(variable, "")
    if len(token) < 16:
        raise ConfigError(f"{variable} holds no token of 16 characters or more", key="--token-env")
    return token
