"""One task in a session, told line by line; the same outcome as a headless run, which is the session's turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from lyra.agents.headless.headless import Headless, HeadlessOptions, HeadlessOutcome, Tell, awaiting, status_of
from lyra.agents.session.events import AnyLine, ResultLine
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.errors import ConfigError, Conflict
from lyra.sage.agent.live import LiveSession, SessionStart

if TYPE_CHECKING:
    from lyra.sage.commands.result import SlashResult


_LAST_WORDS_S: Final = 1.0  # for the reader to take the last line


async def ask_session(
    options: HeadlessOptions,
    config: Config,
    start: SessionStart,
    task: str,
    tell: Tell,
    *,
    beside: str = "",
    warn: Callable[[Headless], object] | None = None,
    opening: bool = True,
) -> HeadlessOutcome:
    """Open a session, put a task to it and tell its lines, without the `system` line where no `opening` is wanted.
    `warn` is called once the session is open."""
    say = awaiting(tell)
    async with LiveSession(options, config, start=start) as session:
        require_model(session)
        if warn is not None:
            warn(session.headless)
        if opening:
            system = await session.opening()
            if session.doubts:
                system["doubts"] = session.doubts
            await say(system)
        else:
            for doubt in session.doubts:
                await say({"type": "notice", "level": "warning", "source": "session", "text": doubt})
        slash = await slash_result(session, task)
        if slash is not None and slash.prompt is None:
            outcome = slash_outcome(session, slash)
            await say(outcome.result)
            return outcome
        prompt, more = (task, {}) if slash is None or slash.prompt is None else (slash.prompt, slash.send_with)
        lines = session.send(prompt, **{"beside": beside, **more})
        result: ResultLine | None = None
        try:
            async with contextlib.aclosing(lines):
                async for line in lines:
                    await say(line)
                    if line["type"] == "result":
                        result = line
        except asyncio.CancelledError:
            await last_words(session, say)
            raise
        assert result is not None, "a turn ends with its result"
        return HeadlessOutcome(result, session.headless.failure)


def require_model(session: LiveSession) -> None:
    """Refuse a model that cannot be asked before a turn begins: a session without a turn leaves nothing behind, and the
    next one does not go on with a mistyped name."""
    runtime_of(session.kernel).models.find(session.model)


async def slash_result(session: LiveSession, task: str) -> SlashResult | None:
    """What a slash command gives; None where the words are no command, such as a path."""
    if not task.startswith("/"):
        return None
    from lyra.sage.commands.registry import ALIASES, COMMANDS, command_list, run_command

    name = task[1:].split(maxsplit=1)[0] if task[1:].strip() else ""
    if name not in COMMANDS and name not in ALIASES and name not in dict(command_list(session)):
        return None
    result = await run_command(session, task)
    if result.open_session:  # one run is one session
        flags = f"--fork-before {result.before_turn}" if result.before_turn else "--fork" if result.fork else ""
        hint = f"sage -r {result.open_session} {flags}".rstrip()
        raise ConfigError(f"/{name} opens another session, which a printed run does not", hint=hint, key="command")
    return result


def slash_outcome(session: LiveSession, slash: SlashResult) -> HeadlessOutcome:
    """How a command went that puts nothing to the model; one that was refused has failed."""
    from lyra.sage.commands.result import plain_text

    error = Conflict(slash.refused) if slash.refused else None
    status = "success" if error is None else status_of(error)
    result = session.headless.result(status, plain_text(slash.blocks))
    return HeadlessOutcome({**result, "session_id": session.id}, error)


async def last_words(session: LiveSession, say: Callable[[AnyLine], Awaitable[None]]) -> None:
    """Say the `result` of a run that a signal ends, unless the reader does not take it."""
    with contextlib.suppress(TimeoutError, OSError):
        await asyncio.wait_for(say(session.interrupted_result()), _LAST_WORDS_S)
