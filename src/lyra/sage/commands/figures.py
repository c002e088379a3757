"""Commands that show figures: cost, context, status; and MCP servers: mcp, and their prompts as slash commands.

Small tables and bars, one screen, no prose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from lyra.core.clock import SystemClock
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError, SandboxUnavailable
from lyra.sage.commands.result import (
    Block,
    SlashArguments,
    SlashResult,
    age,
    bars,
    dollars,
    lines,
    percent,
    table,
    tokens,
)
from lyra.sage.session.usage_log import GROUPS, UsageSum, local_day

if TYPE_CHECKING:
    from lyra.mcp import McpServers
    from lyra.sage.agent.live import LiveSession


_TURNS_SHOWN: Final = 12
_DAYS_SHOWN: Final = 14
_COLUMNS: Final = ("calls", "input", "output", "from cache", "cost")
_PARTS: Final = ("system prompt", "rules", "tools", "messages")  # in the order of ContextTokens


async def cost(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    if words:
        return SlashResult.from_blocks(_by(session, arguments.choice(words[0], GROUPS)))
    log = session.spending.log
    turns = log.sums("turn", session=session.id)
    blocks = [_table("turn", turns[-_TURNS_SHOWN:])]
    agents = log.sums("agent", session=session.id)
    if len(agents) > 1:
        blocks.append(_table("agent", agents))
    today = [total for total in log.sums("day") if total.group == local_day(SystemClock().now())]
    totals = [total._replace(group="this session") for total in log.sums("session", session=session.id)]
    blocks.append(_table("in all", [*totals, *(total._replace(group="today") for total in today)]))
    limits = session.spending.limits()
    rows = [(name, spent, limit, limit - spent if limit > spent else "none") for name, (spent, limit) in limits.items()]
    return SlashResult.from_blocks(*blocks, *[table(("limit", "spent", "of", "left"), rows)] if rows else [])


def _by(session: LiveSession, group: Any) -> Block:
    """Turns are those of this session; the rest is of all sessions."""
    log = session.spending.log
    if group == "turn":
        return _table("turn", log.sums("turn", session=session.id))
    return _table(group, log.sums(group, days=_DAYS_SHOWN, now=SystemClock().now()), f"last {_DAYS_SHOWN} days")


def _table(name: str, totals: list[UsageSum], title: str = "") -> Block:
    rows = [
        (
            *(visible(total.group), total.calls, tokens(total.input_tokens), tokens(total.output_tokens)),
            *(percent(total.cache_share), dollars(total.cost_usd)),
        )
        for total in totals
    ]
    return table((name, *_COLUMNS), rows, title=title)


async def context(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    arguments.none()
    figures = session.context()
    window, total = figures.window, figures.tokens.total
    full = window or total or 1
    rows = [
        (name, float(size), f"{tokens(size)}  {percent(size / full)}")
        for name, size in zip(_PARTS, figures.tokens[:-1], strict=True)
        if size or name != "rules"
    ]
    if window:
        rows.append(("free", float(max(0, window - total)), f"{tokens(max(0, window - total))}"))
    about = "about " if figures.estimated else ""
    size = f"{about}{tokens(total)} of {tokens(window)} tokens" if window else f"{about}{tokens(total)} tokens"
    if figures.compact_at:
        size = f"{size}, compacted from {tokens(figures.compact_at)} on"
    return SlashResult.from_blocks(bars(rows, of=float(full), title=f"{session.model}: {size}"))


async def status(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    arguments.none()
    record, usage = session.record, session.usage()
    figures = session.context()
    window, filled = figures.window, figures.tokens.total
    share = f" of {tokens(window)} ({percent(filled / window)})" if window else ""
    rows: list[tuple[str, str]] = [
        ("session", f"{session.id}  {record.label}" if record.label != session.id else session.id),
        ("folder", visible(session.folder)),
        (
            "began",
            f"{age(record.created_at)}{' ago' if age(record.created_at) != 'now' else ''}, turns: {record.turns}",
        ),
        ("model", session.model),
        ("mode", session.mode),
        ("sandbox", await sandbox_words()),
        ("context", f"{tokens(filled)} tokens{share}"),
        ("cost", dollars(usage.total.cost_usd)),
        *((name, f"{spent} of {limit}") for name, (spent, limit) in session.spending.limits().items()),
        ("MCP", _mcp_words(session)),
    ]
    if record.parent:
        rows.append(("forked from", record.parent))
    if session.spending.problem:
        rows.append(("usage log", session.spending.problem))
    return SlashResult.from_blocks(table(("", ""), rows))


async def sandbox_words() -> str:
    from lyra.sandbox import Sandbox

    try:
        return await Sandbox().tier()
    except SandboxUnavailable:
        return "none: commands do not run"
    except LyraError as error:
        return error.message


def _mcp_words(session: LiveSession) -> str:
    states = [state for servers in servers_of(session) for state in servers.states()]
    if not states:
        return "no server"
    there = sum(state.state == "connected" for state in states)
    return f"{there} of {len(states)} connected"


# ---------------------------------------------------------------- servers

_LENGTH_MAX: Final = 200  # characters of a description that are shown
_known: Final[WeakKeyDictionary[Any, dict[str, dict[str, Any]]]] = WeakKeyDictionary()


def servers_of(session: LiveSession) -> list[McpServers]:
    """Return the sources of tools that are MCP servers; nothing of MCP is imported where there is none."""
    sources = [source for source in session.options.tools if type(source).__name__ == "McpServers"]
    if not sources:
        return []
    from lyra.mcp import McpServers

    return [source for source in sources if isinstance(source, McpServers)]


async def mcp(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(2)
    if words and words[0] == "reconnect":
        if len(words) < 2:
            raise arguments.mistake("the name of the server is missing")
        state = await _server(session, words[1]).reconnect(words[1])
        return SlashResult.from_blocks(f"{state.name}: {state.state}{_failure(state)}")
    if words:
        if len(words) > 1:
            raise arguments.mistake(f"{words[1][:40]!r} is not expected here")
        return await _details(session, words[0])
    states = [state for servers in servers_of(session) for state in servers.states()]
    if not states:
        return SlashResult.from_blocks("no MCP server; `sage mcp add` adds one")
    rows = [
        (state.name, state.state, state.transport, len(state.tools), _line(_failure(state).lstrip(": ")))
        for state in states
    ]
    return SlashResult.from_blocks(table(("server", "state", "transport", "tools", ""), rows))


def _server(session: LiveSession, name: str) -> McpServers:
    for servers in servers_of(session):
        if any(state.name == name for state in servers.states()):
            return servers
    raise ConfigError(f"there is no MCP server {name[:80]!r}", hint="/mcp lists them", key="server")


async def _details(session: LiveSession, name: str) -> SlashResult:
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
    """Return the prompts of one server; none where it cannot be asked, because its state says why."""
    if next(state.state for state in servers.states() if state.name == name) != "connected":
        return []
    try:
        return await servers.prompts(name)
    except LyraError:
        return []


async def read_prompts(session: LiveSession) -> dict[str, dict[str, Any]]:
    """Ask all servers for their prompts: `SERVER:PROMPT` → the prompt."""
    listed: dict[str, dict[str, Any]] = {}
    for servers in servers_of(session):
        for state in servers.states():
            for prompt in await _prompts(servers, state.name):
                listed[f"{state.name}:{prompt['name']}"] = {**prompt, "server": state.name}
    _known[session] = listed
    return listed


def get_prompts(session: LiveSession) -> Mapping[str, dict[str, Any]]:
    """Return the prompts as servers last listed them; nothing is asked."""
    return _known.get(session, {})


async def prompt_result(session: LiveSession, name: str, rest: str) -> SlashResult | None:
    """Return the prompt of a server for this command, with its arguments in their order; None where there is none."""
    server = name.partition(":")[0]
    if not any(state.name == server for servers in servers_of(session) for state in servers.states()):
        return None
    prompt = get_prompts(session).get(name) or (await read_prompts(session)).get(name)
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
