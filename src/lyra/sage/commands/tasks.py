"""The command about sub-agents and background commands: list, show, answer, resume, stop, and what worktrees hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError
from lyra.sage.commands.arguments import SlashArguments
from lyra.sage.commands.result import SlashResult, diff, lines, table
from lyra.sage.commands.session_protocol import CommandSession
from lyra.sage.commands.words import age, dollars, short, tokens

_DIFF_CHARS_MAX: Final = 100_000
_WORDS: Final = ("allow", "always", "deny", "never", "retry", "skip", "fail")


class _WorktreesView(Protocol):
    async def changes(self, task_id: str) -> Sequence[Any]: ...
    async def take(self, task_id: str, paths: Iterable[str]) -> list[str]: ...
    async def merge(self, task_id: str) -> list[str]: ...
    async def discard(self, task_id: str) -> None: ...


class _TasksView(Protocol):
    """A session's tasks, as the command needs them: `lyra.sage.agent.tasks.task_list` has the real ones."""

    @property
    def worktrees(self) -> _WorktreesView: ...

    def list(self) -> Sequence[Any]: ...
    async def answer(self, task_id: str, decision: str = "", *, text: str = "") -> None: ...
    async def resume(self, task_id: str, message: str = "") -> None: ...
    async def stop(self, task_id: str) -> bool: ...


async def tasks(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    listed: _TasksView | None = getattr(session, "tasks", None)
    records = list(listed.list()) if listed is not None else []
    words = arguments.words
    if not words:
        if not records:
            return SlashResult.of("no sub-agent and no background command in this session")
        rows = [_row(record) for record in records]
        return SlashResult.of(table(("id", "state", "what", "age", "tools", "tokens", "cost", "about"), rows))
    action = arguments.choice(words[0], _ACTIONS)
    if len(words) < 2:
        raise arguments.mistake("the id of the task is missing")
    record = _named(records, words[1])
    assert listed is not None
    return await _ACTIONS[action](listed, record, words[2:], arguments)


# ---------------------------------------------------------------- what can be done with one
async def _show(listed: _TasksView, record: Any, rest: list[str], arguments: SlashArguments) -> SlashResult:
    _nothing(rest, arguments)
    facts = [("id", record.id), ("state", record.state), ("what", record.name), ("about", short(record.description))]
    facts += [("cost", dollars(record.cost_usd)), ("tokens", tokens(record.tokens))]
    if record.worktree:
        changes = await listed.worktrees.changes(record.id)
        facts += [("worktree", visible(record.worktree)), ("changed files", str(len(changes)))]
    if record.question is not None:
        facts.append(("asks", visible(record.question.question)))
    return SlashResult.of(table(("", ""), facts), lines(visible(record.text).split("\n"), title="last"))


async def _answer(listed: _TasksView, record: Any, rest: list[str], arguments: SlashArguments) -> SlashResult:
    if not rest:
        raise arguments.mistake("the answer is missing", f"one of {', '.join(_WORDS)}, or a text")
    decision = rest[0] if rest[0] in _WORDS else ""
    await listed.answer(record.id, decision, text=" ".join(rest[1:] if decision else rest))
    return SlashResult.of(f"{record.id} has its answer")


async def _resume(listed: _TasksView, record: Any, rest: list[str], _arguments: SlashArguments) -> SlashResult:
    await listed.resume(record.id, " ".join(rest))
    return SlashResult.of(f"{record.id} goes on")


async def _stop(listed: _TasksView, record: Any, rest: list[str], arguments: SlashArguments) -> SlashResult:
    _nothing(rest, arguments)
    was_working = await listed.stop(record.id)
    return SlashResult.of(f"{record.id} is stopped" if was_working else f"{record.id} was not at work")


async def _diff(listed: _TasksView, record: Any, rest: list[str], arguments: SlashArguments) -> SlashResult:
    changes = await listed.worktrees.changes(record.id)
    unknown = set(rest) - {change.path for change in changes}
    if unknown:
        raise arguments.mistake(f"{min(unknown)[:80]} is not changed in {record.id}")
    chosen = [change for change in changes if not rest or change.path in rest]
    if not chosen:
        return SlashResult.of(f"{record.id} has changed nothing that was not taken over")
    rows = [(change.name, change.kind, *(f"{count}" for count in change.counts)) for change in chosen]
    unified = "".join(change.diff() for change in chosen)
    more = len(unified) - _DIFF_CHARS_MAX
    if more > 0:
        unified = f"{unified[:_DIFF_CHARS_MAX]}\n… {more} characters left out; name a file to see all of it …\n"
    return SlashResult.of(table(("file", "", "+", "−"), rows, title=f"changed by {record.id}"), diff(unified))


async def _take(listed: _TasksView, record: Any, rest: list[str], arguments: SlashArguments) -> SlashResult:
    if not rest:
        raise arguments.mistake("the files to take over are missing", "/tasks merge takes all;")
    return _taken(await listed.worktrees.take(record.id, rest))


async def _merge(listed: _TasksView, record: Any, rest: list[str], arguments: SlashArguments) -> SlashResult:
    _nothing(rest, arguments)
    return _taken(await listed.worktrees.merge(record.id))


async def _discard(listed: _TasksView, record: Any, rest: list[str], arguments: SlashArguments) -> SlashResult:
    _nothing(rest, arguments)
    await listed.worktrees.discard(record.id)
    return SlashResult.of(f"the worktree of {record.id} is removed")


_Action = Callable[[_TasksView, Any, list[str], SlashArguments], Awaitable[SlashResult]]
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


# ---------------------------------------------------------------- words
def _nothing(rest: list[str], arguments: SlashArguments) -> None:
    if rest:
        raise arguments.mistake(f"{rest[0][:40]!r} is not expected here")


def _taken(paths: list[str]) -> SlashResult:
    if not paths:
        return SlashResult.of("there was nothing to take over")
    return SlashResult.of(lines([visible(path) for path in paths], title="taken over; /undo brings them back"))


def _row(record: Any) -> tuple[Any, ...]:
    figures = (record.tools or "", tokens(record.tokens) if record.tokens else "", dollars(record.cost_usd))
    return (record.id, record.state, record.name, age(record.began_at), *figures, short(record.description))


def _named(records: Iterable[Any], prefix: str) -> Any:
    fitting = [record for record in records if record.id.startswith(prefix)]
    exact = [record for record in fitting if record.id == prefix]
    if len(exact or fitting) != 1:
        which = "several tasks have" if fitting else "there is no task with"
        raise ConfigError(f"{which} an id that begins with {prefix[:40]!r}", hint="/tasks lists them", key="id")
    return (exact or fitting)[0]
