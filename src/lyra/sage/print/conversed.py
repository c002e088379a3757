"""`sage -p --input-format stream-json`: several turns in one session, driven by requests from a program.

Messages that come while a turn is under way wait in line. Questions are lines of the output, and the program answers
them; after the end of the input no answer can come, so a question is then withdrawn, the model is told, and the turn
goes on. A line that is no request is told as an `error`, and the next one is read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from lyra.agents.headless.headless import Headless, HeadlessOptions, HeadlessOutcome, Tell, awaiting, error_line
from lyra.config import Config
from lyra.errors import ConfigError, LyraError
from lyra.sage.agent.live import LiveSession, SessionStart
from lyra.sage.print.printed import last_words
from lyra.sage.print.requests import AnswerRequest, InterruptRequest, PrintRequest, read_request

__all__ = ["converse"]

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
        if warn is not None:
            warn(session.headless)
        opening = await session.opening()
        await say({**opening, **({"doubts": session.doubts} if session.doubts else {})})
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

    def __init__(self, session: LiveSession, say: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._session = session
        self._say = say
        self._waiting: deque[str] = deque()
        self._changed = asyncio.Event()
        self._input_is_over = False
        self._open: set[str] = set()  # ids of questions without an answer
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
            await self._say(error_line(error))
        self._input_is_over = True
        for question in sorted(self._open):
            self._session.headless.withdraw(question)
        self._changed.set()

    async def _read_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            await self._take(read_request(line))
        except LyraError as error:  # also an answer to a question that is over
            await self._say(error_line(error))
        while len(self._waiting) >= _WAITING_MAX:
            await self._until_changed()

    async def _take(self, request: PrintRequest) -> None:
        if isinstance(request, InterruptRequest):
            await self._session.interrupt()
        elif isinstance(request, AnswerRequest):
            self._open.discard(request.id)
            await self._session.answer(request.id, request.decision, text=request.text, arguments=request.arguments)
        else:
            self.add(request.text)

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
                await self._say(error_line(error))
                result = {**self._session.headless.result(error.code), "session_id": self._session.id}
                await self._say(result)
                self.outcome = HeadlessOutcome(result, error)

    async def _turn(self, text: str) -> None:
        line: dict[str, Any] = {}
        async with contextlib.aclosing(self._session.send(text)) as lines:
            async for line in lines:
                await self._say(line)
                if line["type"] == "interrupt":
                    self._asked(str(line["id"]))
        self._open.clear()
        self.outcome = HeadlessOutcome(line, self._session.headless.failure)

    def _asked(self, question: str) -> None:
        if self._input_is_over:
            self._session.headless.withdraw(question)
        else:
            self._open.add(question)
