"""The command tasks: sub-agents and background commands of the session, and what they changed in their worktrees."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final

from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, Conflict
from lyra.sage.commands.arguments import SlashArguments
from lyra.sage.commands.project import count_lines
from lyra.sage.commands.result import Block, SlashResult, diff, lines, table
from lyra.sage.commands.session_protocol import CommandSession, TaskListView, TaskView
from lyra.sage.commands.words import age, dollars, short, tokens

__all__ = ["tasks"]

_COLUMNS: Final = ("id", "state", "what", "age", "tools", "tokens", "cost", "about")
_DECISIONS: Final = ("allow", "always", "deny", "never", "retry", "skip", "fail")


async def tasks(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    action, _, rest = arguments.text.partition(" ")
    if not action:
        return _listed(session.tasks.list())
    arguments.choice(action, _ACTIONS)
    prefix, _, rest = rest.strip().partition(" ")
    if not prefix:
        raise arguments.mistake("the id of the task is missing")
    task = _task(session.tasks.list(), prefix)
    return await _ACTIONS[action](session.tasks, task, rest.strip(), arguments)


def _listed(records: Sequence[TaskView]) -> SlashResult:
    if not records:
        return SlashResult.of("no sub-agent and no background command in this session")
    blocks: list[Block] = [table(_COLUMNS, [_row(record) for record in records])]
    asking = [f"{record.id}: {short(record.question.question)}" for record in records if record.question is not None]
    blocks += [lines(asking, title="asks")] if asking else []
    return SlashResult(blocks=blocks)


def _row(record: TaskView) -> tuple[object, ...]:
    figures = (record.tools or "", tokens(record.tokens) if record.tokens else "", dollars(record.cost_usd))
    return (record.id, record.state, record.name, age(record.began_at), *figures, short(record.description))


def _task(records: Sequence[TaskView], prefix: str) -> TaskView:
    """The task whose id is this, or the only one whose id begins or ends so."""
    exact = [record for record in records if record.id == prefix]
    fitting = exact or [record for record in records if record.id.startswith(prefix) or record.id.endswith(prefix)]
    if len(fitting) != 1:
        which = "several tasks have" if fitting else "there is no task with"
        raise ConfigError(f"{which} such an id: {prefix[:40]!r}", hint="/tasks lists them", key="id")
    return fitting[0]


# ---------------------------------------------------------------- what can be done with one
async def _show(_tasks: TaskListView, task: TaskView, rest: str, arguments: SlashArguments) -> SlashResult:
    _nothing_more(rest, arguments)
    facts = [
        *(("id", task.id), ("state", task.state), ("what", task.name), ("about", short(task.description))),
        *(("tokens", tokens(task.tokens)), ("cost", dollars(task.cost_usd))),
    ]
    if task.worktree:
        facts.append(("worktree", visible(task.worktree)))
    if task.question is not None:
        facts.append(("asks", visible(task.question.question)))
    last = [lines(visible(task.text).split("\n"), title="last")] if task.text else []
    return SlashResult.of(table(("", ""), facts), *last)


async def _stop(tasks_: TaskListView, task: TaskView, rest: str, arguments: SlashArguments) -> SlashResult:
    _nothing_more(rest, arguments)
    was_working = await tasks_.stop(task.id)
    return SlashResult.of(f"{task.id} is stopped" if was_working else f"{task.id} was doing nothing")


async def _resume(tasks_: TaskListView, task: TaskView, rest: str, _arguments: SlashArguments) -> SlashResult:
    await tasks_.resume(task.id, rest)
    return SlashResult.of(f"{task.id} goes on")


async def _answer(tasks_: TaskListView, task: TaskView, rest: str, arguments: SlashArguments) -> SlashResult:
    """A decision, with words if wanted, or words alone."""
    if not rest:
        raise arguments.mistake("the answer is missing")
    word, _, more = rest.partition(" ")
    if word in _DECISIONS:
        await tasks_.answer(task.id, word, text=more.strip())
    else:
        await tasks_.answer(task.id, text=rest)
    return SlashResult.of(f"{task.id} is answered")


async def _diff(tasks_: TaskListView, task: TaskView, rest: str, arguments: SlashArguments) -> SlashResult:
    _nothing_more(rest, arguments)
    changes = await tasks_.worktrees.changes(task.id)
    if not changes:
        return SlashResult.of(f"{task.id} has changed nothing that is not taken over")
    diffs = [change.diff() for change in changes]
    rows = [(visible(change.path), *count_lines(text)) for change, text in zip(changes, diffs, strict=True)]
    return SlashResult.of(table(("file", "+", "−"), rows), diff("".join(diffs)))


async def _take(tasks_: TaskListView, task: TaskView, rest: str, arguments: SlashArguments) -> SlashResult:
    paths = SlashArguments(rest, arguments.usage).words
    if not paths:
        raise arguments.mistake("the files are missing; /tasks diff shows them, /tasks merge takes all")
    return await _taken(tasks_.worktrees.take(task.id, paths))


async def _merge(tasks_: TaskListView, task: TaskView, rest: str, arguments: SlashArguments) -> SlashResult:
    _nothing_more(rest, arguments)
    return await _taken(tasks_.worktrees.merge(task.id))


async def _taken(taking: Awaitable[Sequence[str]]) -> SlashResult:
    try:
        paths = await taking
    except Conflict as conflict:
        return SlashResult.of(conflict.message)
    if not paths:
        return SlashResult.of("there was nothing to take over")
    return SlashResult.of(lines([f"  {visible(path)}" for path in paths], title="taken over"))


async def _discard(tasks_: TaskListView, task: TaskView, rest: str, arguments: SlashArguments) -> SlashResult:
    _nothing_more(rest, arguments)
    await tasks_.worktrees.discard(task.id)
    return SlashResult.of(f"the worktree of {task.id} is removed, with all that was in it")


def _nothing_more(rest: str, arguments: SlashArguments) -> None:
    if rest:
        raise arguments.mistake(f"{rest[:40]!r} is not expected here")


_ACTIONS: Final = {
    "show": _show,
    "stop": _stop,
    "resume": _resume,
    "answer": _answer,
    "diff": _diff,
    "take": _take,
    "merge": _merge,
    "discard": _discard,
}
