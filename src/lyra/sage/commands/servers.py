"""MCP servers of a session: the command mcp, and the prompts of servers as slash commands.

    /github:review-pr 12        the prompt `review-pr` of the server `github`

The text of a prompt comes from outside. It is sent beside the message, so it taints the session as a file does that is
read. Servers are asked for their prompts when a list is wanted, never while a person types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError
from lyra.sage.commands.arguments import SlashArguments
from lyra.sage.commands.result import SlashResult, lines, table
from lyra.sage.commands.session_protocol import CommandSession

if TYPE_CHECKING:
    from lyra.mcp import McpServers


_LENGTH_MAX: Final = 200  # characters of a description that are shown
_known: Final[WeakKeyDictionary[Any, dict[str, dict[str, Any]]]] = WeakKeyDictionary()


def servers_of(session: CommandSession) -> list[McpServers]:
    """The sources of tools that are MCP servers; nothing of MCP is imported where there is none."""
    sources = [source for source in session.options.tools if type(source).__name__ == "McpServers"]
    if not sources:
        return []
    from lyra.mcp import McpServers

    return [source for source in sources if isinstance(source, McpServers)]


async def mcp(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(2)
    if words and words[0] == "reconnect":
        if len(words) < 2:
            raise arguments.mistake("the name of the server is missing")
        state = await _server(session, words[1]).reconnect(words[1])
        return SlashResult.of(f"{state.name}: {state.state}{_failure(state)}")
    if words:
        if len(words) > 1:
            raise arguments.mistake(f"{words[1][:40]!r} is not expected here")
        return await _details(session, words[0])
    states = [state for servers in servers_of(session) for state in servers.states()]
    if not states:
        return SlashResult.of("no MCP server; `sage mcp add` adds one")
    rows = [
        (state.name, state.state, state.transport, len(state.tools), _line(_failure(state).lstrip(": ")))
        for state in states
    ]
    return SlashResult.of(table(("server", "state", "transport", "tools", ""), rows))


def _server(session: CommandSession, name: str) -> McpServers:
    for servers in servers_of(session):
        if any(state.name == name for state in servers.states()):
            return servers
    raise ConfigError(f"there is no MCP server {name[:80]!r}", hint="/mcp lists them", key="server")


async def _details(session: CommandSession, name: str) -> SlashResult:
    servers = _server(session, name)
    state = next(state for state in servers.states() if state.name == name)
    blocks = [table(("", ""), [("state", f"{state.state}{_failure(state)}"), ("from", state.origin)])]
    if state.tools:
        blocks.append(lines([f"  {_line(tool)}" for tool in state.tools], title="tools"))
    prompts = await _prompts(servers, name)
    if prompts:
        rows = [(f"/{name}:{_line(prompt['name'])}", _line(prompt.get("description") or "")) for prompt in prompts]
        blocks.append(table(("prompt", ""), rows))
    return SlashResult(blocks=blocks)


def _failure(state: Any) -> str:
    return f": {state.failure.message}" if state.failure is not None else ""


# ---------------------------------------------------------------- prompts
async def _prompts(servers: McpServers, name: str) -> list[dict[str, Any]]:
    """The prompts of one server; none where it cannot be asked, because its state says why."""
    if next(state.state for state in servers.states() if state.name == name) != "connected":
        return []
    try:
        return await servers.prompts(name)
    except LyraError:
        return []


async def read_prompts(session: CommandSession) -> dict[str, dict[str, Any]]:
    """Ask all servers for their prompts: `SERVER:PROMPT` → the prompt."""
    listed: dict[str, dict[str, Any]] = {}
    for servers in servers_of(session):
        for state in servers.states():
            for prompt in await _prompts(servers, state.name):
                listed[f"{state.name}:{prompt['name']}"] = {**prompt, "server": state.name}
    _known[session] = listed
    return listed


def known_prompts(session: CommandSession) -> Mapping[str, dict[str, Any]]:
    """The prompts as servers last listed them; nothing is asked."""
    return _known.get(session, {})


async def prompt_result(session: CommandSession, name: str, rest: str) -> SlashResult | None:
    """The prompt of a server for this command, with its arguments in their order; None where there is none."""
    server = name.partition(":")[0]
    if not any(state.name == server for servers in servers_of(session) for state in servers.states()):
        return None
    prompt = known_prompts(session).get(name) or (await read_prompts(session)).get(name)
    if prompt is None:
        return None
    names = [str(argument["name"]) for argument in prompt.get("arguments") or ()]
    arguments = SlashArguments(rest, " ".join([f"/{name}", *(f"[{argument}]" for argument in names)]))
    words = arguments.at_most(len(names)) if names else arguments.at_most(0)
    required = [str(argument["name"]) for argument in prompt.get("arguments") or () if argument.get("required")]
    given = dict(zip(names, words, strict=False))
    missing = [argument for argument in required if argument not in given]
    if missing:
        raise arguments.mistake(f"{missing[0]} is missing")
    text = await _server(session, server).get_prompt(server, prompt["name"], given or None)
    return SlashResult(
        prompt=f"Do what the prompt {_line(prompt['name'])!r} of the MCP server {server!r} below asks for.",
        send_with={"beside": text},
    )


def _line(text: str) -> str:
    return visible(" ".join(text.split()))[:_LENGTH_MAX]
