"""Commands about what the agent has: tasks (sub-agents, background commands, worktrees), tools, memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from lyra.core.secrets.visible import visible
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.sage.agent.live import LiveSession
from lyra.sage.agent.tasks.state import TaskRecord
from lyra.sage.agent.tasks.task_list import TaskList
from lyra.sage.commands.result import SlashArguments, SlashResult, age, diff, dollars, lines, short, table, tokens
from lyra.tools.permissions.decision import Permissions

_DIFF_CHARS_MAX: Final = 100_000
_WORDS: Final = ("allow", "always", "deny", "never", "retry", "skip", "fail")


async def tasks(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    records, words = session.tasks.list(), arguments.words
    if not words:
        if not records:
            return SlashResult.from_blocks("no sub-agent and no background command in this session")
        rows = [_row(record) for record in records]
        return SlashResult.from_blocks(table(("id", "state", "what", "age", "tools", "tokens", "cost", "about"), rows))
    action = arguments.choice(words[0], _ACTIONS)
    if len(words) < 2:
        raise arguments.mistake("the id of the task is missing")
    return await _ACTIONS[action](session.tasks, _find_record(records, words[1]), words[2:], arguments)


async def _show(listed: TaskList, record: TaskRecord, rest: list[str], arguments: SlashArguments) -> SlashResult:
    _nothing(rest, arguments)
    facts = [("id", record.id), ("state", record.state), ("what", record.name), ("about", short(record.description))]
    facts += [("cost", dollars(record.cost_usd)), ("tokens", tokens(record.tokens))]
    if record.worktree:
        changes = await listed.worktrees.changes(record.id)
        facts += [("worktree", visible(record.worktree)), ("changed files", str(len(changes)))]
    if record.question is not None:
        facts.append(("asks", visible(record.question.question)))
    return SlashResult.from_blocks(table(("", ""), facts), lines(visible(record.text).split("\n"), title="last"))


async def _answer(listed: TaskList, record: TaskRecord, rest: list[str], arguments: SlashArguments) -> SlashResult:
    if not rest:
        raise arguments.mistake("the answer is missing", f"one of {', '.join(_WORDS)}, or a text")
    decision = rest[0] if rest[0] in _WORDS else ""
    await listed.answer(record.id, decision, text=" ".join(rest[1:] if decision else rest))
    return SlashResult.from_blocks(f"{record.id} has its answer")


async def _resume(listed: TaskList, record: TaskRecord, rest: list[str], _arguments: SlashArguments) -> SlashResult:
    await listed.resume(record.id, " ".join(rest))
    return SlashResult.from_blocks(f"{record.id} goes on")


async def _stop(listed: TaskList, record: TaskRecord, rest: list[str], arguments: SlashArguments) -> SlashResult:
    _nothing(rest, arguments)
    was_working = await listed.stop(record.id)
    return SlashResult.from_blocks(f"{record.id} is stopped" if was_working else f"{record.id} was not at work")


async def _diff(listed: TaskList, record: TaskRecord, rest: list[str], arguments: SlashArguments) -> SlashResult:
    changes = await listed.worktrees.changes(record.id)
    unknown = set(rest) - {change.path for change in changes}
    if unknown:
        raise arguments.mistake(f"{min(unknown)[:80]} is not changed in {record.id}")
    chosen = [change for change in changes if not rest or change.path in rest]
    if not chosen:
        return SlashResult.from_blocks(f"{record.id} has changed nothing that was not taken over")
    rows = [(change.name, change.kind, *(f"{count}" for count in change.counts)) for change in chosen]
    unified = "".join(change.diff() for change in chosen)
    more = len(unified) - _DIFF_CHARS_MAX
    if more > 0:
        unified = f"{unified[:_DIFF_CHARS_MAX]}\n… {more} characters left out; name a file to see all of it …\n"
    return SlashResult.from_blocks(table(("file", "", "+", "−"), rows, title=f"changed by {record.id}"), diff(unified))


async def _take(listed: TaskList, record: TaskRecord, rest: list[str], arguments: SlashArguments) -> SlashResult:
    if not rest:
        raise arguments.mistake("the files to take over are missing", "/tasks merge takes all;")
    return _show_taken_paths(await listed.worktrees.take(record.id, rest))


async def _merge(listed: TaskList, record: TaskRecord, rest: list[str], arguments: SlashArguments) -> SlashResult:
    _nothing(rest, arguments)
    return _show_taken_paths(await listed.worktrees.merge(record.id))


async def _discard(listed: TaskList, record: TaskRecord, rest: list[str], arguments: SlashArguments) -> SlashResult:
    _nothing(rest, arguments)
    await listed.worktrees.discard(record.id)
    return SlashResult.from_blocks(f"the worktree of {record.id} is removed")


_Action = Callable[[TaskList, TaskRecord, list[str], SlashArguments], Awaitable[SlashResult]]
_ACTIONS: Final[dict[str, _Action]] = {
    "show": _show,
    "answer": _answer,
    "resume": _resume,
    "stop": _stop,
    "diff": _diff,
    "take": _take,
    "merge": _merge,
    "discard": _discard,
}
HINT: Final = f"[{' | '.join(_ACTIONS)} ID …]"


def _nothing(rest: list[str], arguments: SlashArguments) -> None:
    if rest:
        raise arguments.mistake(f"{rest[0][:40]!r} is not expected here")


def _show_taken_paths(paths: list[str]) -> SlashResult:
    if not paths:
        return SlashResult.from_blocks("there was nothing to take over")
    return SlashResult.from_blocks(lines([visible(path) for path in paths], title="taken over; /undo brings them back"))


def _row(record: TaskRecord) -> tuple[Any, ...]:
    figures = (record.tools or "", tokens(record.tokens) if record.tokens else "", dollars(record.cost_usd))
    return (record.id, record.state, record.name, age(record.began_at), *figures, short(record.description))


def _find_record(records: Iterable[TaskRecord], prefix: str) -> TaskRecord:
    fitting = [record for record in records if record.id.startswith(prefix)]
    exact = [record for record in fitting if record.id == prefix]
    if len(exact or fitting) != 1:
        which = "several tasks have" if fitting else "there is no task with"
        raise ConfigError(f"{which} an id that begins with {prefix[:40]!r}", hint="/tasks lists them", key="id")
    return (exact or fitting)[0]


_RULES_SHOWN: Final = 3


async def tools(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    listed = dict(_all_tools(session))
    if words:
        name = arguments.choice(words[0], listed)
        tool = listed[name]
        inputs, required = tool.schema.get("properties", {}), tool.schema.get("required", ())
        rows = [
            (visible(field), "required" if field in required else "", short(str((about or {}).get("description", ""))))
            for field, about in inputs.items()
        ]
        rules = _rules(session.headless.setup.permissions, name)
        about = lines([visible(line) for line in tool.description.strip().split("\n")], title=visible(name))
        return SlashResult.from_blocks(
            about, *([table(("argument", "", ""), rows)] if rows else []), *([rules] if rules else [])
        )
    permissions = session.headless.setup.permissions
    rows = [
        (visible(tool.name), _rules(permissions, tool.name), short(tool.description.strip().split("\n", 1)[0]))
        for tool in listed.values()
    ]
    return SlashResult.from_blocks(table(("tool", "rules", ""), rows))


def _all_tools(session: LiveSession) -> Iterable[tuple[str, Tool]]:
    agent = session.headless.agent
    sources = [tool for source in agent.sources for tool in source.__lyra_tools__()]
    return ((tool.name, tool) for tool in (*agent.tools.values(), *sources))


def _rules(permissions: Permissions, tool: str) -> str:
    effects: tuple[Any, ...] = ("deny", "ask", "allow")
    rules = [f"{effect} {rule.text}" for effect in effects for rule in permissions.rules_of(effect, tool)]
    more = f" and {len(rules) - _RULES_SHOWN} more" if len(rules) > _RULES_SHOWN else ""
    return visible(", ".join(rules[:_RULES_SHOWN]) + more)


async def memory(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    """Show the files of rules that the model is given, or add a line to the project's own."""
    if session.equipment is None:
        raise ConfigError("this session is given no rules of files", key="memory")
    rules = session.equipment.rules
    action, _, rest = arguments.text.partition(" ")
    if action:
        arguments.choice(action, ("add",))
        if not rest.strip():
            raise arguments.mistake("what to add is missing")
        path = rules.add_line(session.without_keys(rest))
        return SlashResult.from_blocks(f"added to {visible(path)}; it counts from the next message on")
    rules.text()
    rows = [(source.shown, tokens(source.chars // 4), source.problem or "in force") for source in rules.sources]
    none = "no rules yet; /init has AGENTS.md written, /memory add TEXT adds a line to it"
    return SlashResult.from_blocks(table(("file", "tokens", ""), rows)) if rows else SlashResult.from_blocks(none)
