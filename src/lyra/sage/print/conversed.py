"""`sage -p --input-format stream-json`: several turns in one session, driven by requests from a program.

Messages that come while a turn is under way wait in line. Questions are lines of the output, those of sub-agents in the
background between turns as well, and the program answers them; after the end of the input no answer can come, so a
question is then withdrawn, the model is told, and the turn goes on. A slash command does what it says. A line that is
no request is told as an `error`, and the next one is read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from lyra.agents.headless.headless import Headless, HeadlessOptions, HeadlessOutcome, Tell, awaiting, error_line
from lyra.agents.session.events import AnyLine, ErrorLine, NoticeLine, ResultLine
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError, NoSuchInterrupt
from lyra.sage.agent.live import LiveSession, SessionStart
from lyra.sage.agent.session_notices import SessionNotices
from lyra.sage.print.printed import last_words, require_model, slash_outcome, slash_result
from lyra.sage.print.requests import AnswerRequest, InterruptRequest, PrintRequest, read_request

_WAITING_MAX: Final = 1_000  # messages; reading stops until there is room


async def converse(
    options: HeadlessOptions,
    config: Config,
    start: SessionStart,
    lines: AsyncIterator[bytes],
    tell: Tell,
    *,
    first: str = "",
    warn: Callable[[Headless], object] | None = None,
) -> HeadlessOutcome:
    """Open a session, and do what the requests of `lines` say until their end; `first` is a message before them. The
    outcome is that of the last turn."""
    say = awaiting(tell)
    attended = msgspec.structs.replace(options, attended=True)
    async with LiveSession(attended, config, start=start) as session:
        require_model(session)
        if warn is not None:
            warn(session.headless)
        opening = await session.opening()
        if session.doubts:
            opening["doubts"] = session.doubts
        await say(opening)
        turns = _RequestedTurns(session, say)
        if first:
            turns.add(first)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(turns.read(lines))
                try:
                    await turns.run()
                except asyncio.CancelledError:
                    await last_words(session, say)
                    raise
                finally:
                    reading.cancel()
        except BaseExceptionGroup as failures:  # such as a reader that has closed the pipe
            raise failures.exceptions[0] from None
        return turns.outcome


class _RequestedTurns:
    """The turns of one conversation, one after the other."""

    def __init__(self, session: LiveSession, say: Callable[[AnyLine], Awaitable[None]]) -> None:
        self._session = session
        self._say = say
        self._waiting: deque[str] = deque()
        self._changed = asyncio.Event()
        self._input_is_over = False
        self._open: set[str] = set()  # ids of questions of the turn without an answer
        self._of_tasks: set[str] = set()  # ids of questions of tasks in the background that were told
        self._notices = SessionNotices(session, self._on_notice)
        nothing = ConfigError("no message came", hint='write {"type": "user", "text": "…"} to stdin', key="input")
        self.outcome = HeadlessOutcome(session.headless.result(nothing.code), nothing)

    def add(self, text: str) -> None:
        self._waiting.append(text)
        self._changed.set()

    # ------------------------------------------------------------ the input
    async def read(self, lines: AsyncIterator[bytes]) -> None:
        """Take requests until the end of the input, or until it cannot be read any further."""
        try:
            async for line in lines:
                await self._read_line(line)
        except ConfigError as error:
            await self._say(self._error_line(error))
        self._input_is_over = True
        for question in sorted(self._open | self._of_tasks):
            self._session.headless.withdraw(question)
        self._changed.set()

    async def _read_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            await self._take(read_request(line))
        except LyraError as error:  # also an answer to a question that is over
            await self._say(self._error_line(error))
        while len(self._waiting) >= _WAITING_MAX:
            await self._until_changed()

    async def _take(self, request: PrintRequest) -> None:
        if isinstance(request, InterruptRequest):
            await self._session.interrupt()
        elif isinstance(request, AnswerRequest):
            self._open.discard(request.id)
            await self._answer(request)
        else:
            self.add(request.text)

    async def _answer(self, request: AnswerRequest) -> None:
        try:
            await self._session.answer(request.id, request.decision, text=request.text, arguments=request.arguments)
        except NoSuchInterrupt:
            message = f"no question has the id {visible(request.id[:80])}"
            raise ConfigError(message, hint="the `interrupt` line of a question has its id", key="input") from None
        await self._tell_questions()  # a task may have a further one

    # ------------------------------------------------------------ tasks in the background
    def _on_notice(self, notice: NoticeLine) -> None:
        self._session.kernel.tasks.start(self._tell_notice(notice), name="lyra-print-notice")

    async def _tell_notice(self, notice: NoticeLine) -> None:
        await self._say(notice)
        await self._tell_questions()

    async def _tell_questions(self) -> None:
        """Tell the open questions of tasks in the background, each once; without input they are withdrawn."""
        for task_id in self._notices.asking():
            question = self._notices.question_of(task_id)
            if question is None or question["id"] in self._of_tasks:
                continue
            self._of_tasks.add(question["id"])
            await self._say(question)
            if self._input_is_over:
                self._session.headless.withdraw(question["id"])

    def _error_line(self, error: LyraError) -> ErrorLine:
        return error_line(error, runtime_of(self._session.kernel).known)

    async def _until_changed(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # ------------------------------------------------------------ the turns
    async def run(self) -> None:
        """Do the messages in their order, until there are none and no more can come."""
        while self._waiting or not self._input_is_over:
            if not self._waiting:
                await self._until_changed()
                continue
            text = self._waiting.popleft()
            self._changed.set()
            try:
                await self._turn(text)
            except LyraError as error:  # the turn was refused, such as by a budget
                await self._say(self._error_line(error))
                result = self._session.headless.result(error.code)
                result["session_id"] = self._session.id
                await self._say(result)
                self.outcome = HeadlessOutcome(result, error)

    async def _turn(self, text: str) -> None:
        slash = await slash_result(self._session, text)
        if slash is not None and slash.prompt is None:
            self.outcome = slash_outcome(self._session, slash)
            await self._say(self.outcome.result)
            return
        prompt, more = (text, {}) if slash is None or slash.prompt is None else (slash.prompt, slash.send_with)
        result: ResultLine | None = None
        async with contextlib.aclosing(self._session.send(prompt, **more)) as lines:
            async for line in lines:
                await self._say(line)
                if line["type"] == "interrupt":
                    self._asked(line["id"])
                elif line["type"] == "result":
                    result = line
        self._open.clear()
        assert result is not None, "a turn ends with its result"
        self.outcome = HeadlessOutcome(result, self._session.headless.failure)

    def _asked(self, question: str) -> None:
        if self._input_is_over:
            self._session.headless.withdraw(question)
        else:
            self._open.add(question)
