"""Commands that show figures: cost, context, status. Small tables and bars, one screen, no prose."""

from __future__ import annotations

from typing import Any, Final

from lyra.core.clock import SystemClock
from lyra.core.secrets.visible import visible
from lyra.errors import LyraError, SandboxUnavailable
from lyra.sage.commands.arguments import SlashArguments
from lyra.sage.commands.result import Block, SlashResult, bars, table
from lyra.sage.commands.servers import servers_of
from lyra.sage.commands.session_protocol import CommandSession
from lyra.sage.commands.words import age, dollars, percent, tokens
from lyra.sage.session.usage_log import GROUPS, UsageSum, local_day

_TURNS_SHOWN: Final = 12
_DAYS_SHOWN: Final = 14
_COLUMNS: Final = ("calls", "input", "output", "from cache", "cost")
_PARTS: Final = ("system prompt", "memory", "tools", "messages")  # in the order of ContextTokens


async def cost(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    if words:
        return SlashResult.of(_by(session, arguments.choice(words[0], GROUPS)))
    log = session.spending.log
    turns = log.sums("turn", session=session.id)
    blocks = [_table("turn", turns[-_TURNS_SHOWN:])]
    agents = log.sums("agent", session=session.id)
    if len(agents) > 1:
        blocks.append(_table("agent", agents))
    today = [total for total in log.sums("day") if total.group == local_day(SystemClock().now())]
    totals = [total._replace(group="this session") for total in log.sums("session", session=session.id)]
    blocks.append(_table("in all", [*totals, *(total._replace(group="today") for total in today)]))
    return SlashResult.of(*blocks, *_limits(session))


def _by(session: CommandSession, group: Any) -> Block:
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


def _limits(session: CommandSession) -> list[Block]:
    limits = session.spending.limits()
    rows = [(name, spent, limit, limit - spent if limit > spent else "none") for name, (spent, limit) in limits.items()]
    return [table(("limit", "spent", "of", "left"), rows)] if rows else []


async def context(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    arguments.none()
    figures = session.context()
    window, total = figures.window, figures.tokens.total
    full = window or total or 1
    rows = [
        (name, float(size), f"{tokens(size)}  {percent(size / full)}")
        for name, size in zip(_PARTS, figures.tokens[:-1], strict=True)
        if size or name != "memory"
    ]
    if window:
        rows.append(("free", float(max(0, window - total)), f"{tokens(max(0, window - total))}"))
    about = "about " if figures.estimated else ""
    size = f"{about}{tokens(total)} of {tokens(window)} tokens" if window else f"{about}{tokens(total)} tokens"
    if figures.compact_at:
        size = f"{size}, compacted from {tokens(figures.compact_at)} on"
    return SlashResult.of(bars(rows, of=float(full), title=f"{session.model}: {size}"))


async def status(session: CommandSession, arguments: SlashArguments) -> SlashResult:
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
    return SlashResult.of(table(("", ""), rows))


async def sandbox_words() -> str:
    from lyra.sandbox import Sandbox

    try:
        return await Sandbox().tier()
    except SandboxUnavailable:
        return "none: commands do not run"
    except LyraError as error:
        return error.message


def _mcp_words(session: CommandSession) -> str:
    states = [state for servers in servers_of(session) for state in servers.states()]
    if not states:
        return "no server"
    there = sum(state.state == "connected" for state in states)
    return f"{there} of {len(states)} connected"
