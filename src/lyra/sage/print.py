"""`sage -p`: turns of a session, told line by line. Imports nothing of a terminal.

`ask_session` puts one task to a session; its outcome is that of a headless run. `converse` is `--input-format
stream-json`: several turns in one session, driven by requests from a program, one JSON object a line. Messages that
come while a turn is under way wait in line, but with `"steer": true` the model reads one in the middle of the turn.
Questions are lines of the output, those of sub-agents in the background between turns as well, and the program answers
them; after the end of the input no answer can come, so a question is then withdrawn, the model is told, and the turn
continues. A line that is no request is told as an `error`, and the next one is read. `lyra.cli.commands.agent` prints
the lines, for `lyra agent -p` as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from lyra.agents.headless.headless import (
    Headless,
    HeadlessOutcome,
    Tell,
    awaiting,
    error_line,
    status_of,
    with_error,
)
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.session.events import AnyLine, ErrorLine, NoticeLine, ResultLine
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, Conflict, LyraError, NoSuchInterrupt
from lyra.sage.agent.attachments import attach
from lyra.sage.agent.live import LiveSession, SessionStart
from lyra.sage.agent.session_notices import SessionNotices

if TYPE_CHECKING:
    from lyra.sage.commands.result import SlashResult


_LAST_WORDS_S: Final = 1.0  # for the reader to take the last line
_WAITING_MAX: Final = 1_000  # messages; reading stops until there is room

Say = Callable[[AnyLine], Awaitable[None]]


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
        await _begin(session, say, warn, opening=opening)
        try:
            return await _run_turn(session, say, task, beside=beside)
        except asyncio.CancelledError:
            await _say_interrupted(session, say)
            raise


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
        await _begin(session, say, warn)
        turns = _RequestedTurns(session, say)
        if first:
            turns.add(first)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(turns.read(lines))
                try:
                    await turns.run()
                except asyncio.CancelledError:
                    await _say_interrupted(session, say)
                    raise
                finally:
                    reading.cancel()
        except BaseExceptionGroup as failures:  # such as a reader that has closed the pipe
            raise failures.exceptions[0] from None
        return turns.outcome


async def _begin(
    session: LiveSession, say: Say, warn: Callable[[Headless], object] | None, *, opening: bool = True
) -> None:
    """Tell what a session begins with. A model that cannot be asked is refused before a turn begins: a session without
    a turn leaves nothing behind, and the next one does not continue with a mistyped name."""
    runtime_of(session.kernel).models.find(session.model)
    if warn is not None:
        warn(session.headless)
    if session.effort_note:
        await say({"type": "notice", "level": "info", "source": "session", "text": session.effort_note})
    if opening:
        system = await session.opening()
        if session.doubts:
            system["doubts"] = session.doubts
        await say(system)
        return
    for doubt in session.doubts:
        await say({"type": "notice", "level": "warning", "source": "session", "text": doubt})


async def _run_turn(
    session: LiveSession, say: Say, task: str, *, beside: str = "", on_question: Callable[[str], object] | None = None
) -> HeadlessOutcome:
    """Do one task, which may be a slash command, and tell its lines. `on_question` is called with the id of each
    question."""
    slash = await _slash_result(session, task)
    if slash is not None and slash.prompt is None:
        outcome = _slash_outcome(session, slash)
        await say(outcome.result)
        return outcome
    if slash is None or slash.prompt is None:
        attached = await attach(session, task)
        for note in attached.notes:
            await say({"type": "notice", "level": "info", "source": "attachments", "text": note})
        prompt, more = task, attached.send_with
    else:
        prompt, more = slash.prompt, slash.send_with
    beside = "\n\n".join(filter(None, (beside, more.get("beside"))))
    result: ResultLine | None = None
    async with contextlib.aclosing(session.send(prompt, **{**more, "beside": beside})) as lines:
        async for line in lines:
            await say(line)
            if line["type"] == "interrupt" and on_question is not None:
                on_question(line["id"])
            elif line["type"] == "result":
                result = line
    assert result is not None, "a turn ends with its result"
    return HeadlessOutcome(result, session.headless.failure)


async def _slash_result(session: LiveSession, task: str) -> SlashResult | None:
    """Run a slash command; None where the words are no command, such as a path."""
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


def _slash_outcome(session: LiveSession, slash: SlashResult) -> HeadlessOutcome:
    """Return how a command went that puts nothing to the model; one that was refused has failed."""
    from lyra.sage.commands.result import render_text

    error = Conflict(slash.refused) if slash.refused else None
    status = "success" if error is None else status_of(error)
    result = session.headless.result(status, render_text(slash.blocks))
    return HeadlessOutcome(with_error({**result, "session_id": session.id}, error), error)


async def _say_interrupted(session: LiveSession, say: Say) -> None:
    """Say the `result` of a run that a signal ends, unless the reader does not take it."""
    with contextlib.suppress(TimeoutError, OSError):
        await asyncio.wait_for(say(session.build_interrupted_result()), _LAST_WORDS_S)


# ---------------------------------------------------------------- requests of a program


class _RequestedTurns:
    """The turns of one conversation, one after the other."""

    def __init__(self, session: LiveSession, say: Say) -> None:
        self._session = session
        self._say = say
        self._waiting: deque[str] = deque()
        self._changed = asyncio.Event()
        self._input_is_over = False
        self._steered: dict[str, str] = {}  # by key: messages for the turn under way that it has not got yet
        session.steering.listeners.append(lambda key, _text: self._steered.pop(key, None))
        self._open: set[str] = set()  # ids of questions of the turn without an answer
        self._of_tasks: set[str] = set()  # ids of questions of tasks in the background that were told
        self._notices = SessionNotices(session, self._on_notice)
        nothing = ConfigError("no message came", hint='write {"type": "user", "text": "…"} to stdin', key="input")
        self.outcome = HeadlessOutcome(session.headless.result(nothing.code), nothing)

    def add(self, text: str) -> None:
        self._waiting.append(text)
        self._changed.set()

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
        elif request.steer and self._session.is_busy and not request.text.startswith("/"):
            self._steered[self._session.steer(request.text)] = request.text
        else:
            self.add(request.text)

    async def _answer(self, request: AnswerRequest) -> None:
        try:
            await self._session.answer(request.id, request.decision, text=request.text, arguments=request.arguments)
        except NoSuchInterrupt:
            message = f"no question has the id {visible(request.id[:80])}"
            raise ConfigError(message, hint="the `interrupt` line of a question has its id", key="input") from None
        await self._tell_questions()  # a task may have a further one

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

    async def run(self) -> None:
        """Do the messages in their order, until there are none and no more can come."""
        while self._waiting or not self._input_is_over:
            if not self._waiting:
                await self._until_changed()
                continue
            text = self._waiting.popleft()
            self._changed.set()
            try:
                self.outcome = await _run_turn(self._session, self._say, text, on_question=self._on_question)
                self._open.clear()
                self._waiting.extendleft(reversed(self._steered.values()))  # it came too late: it is the next message
                self._steered.clear()
            except LyraError as error:  # the turn was refused, such as by a budget
                await self._say(self._error_line(error))
                result = with_error(self._session.headless.result(error.code), error)
                result["session_id"] = self._session.id
                await self._say(result)
                self.outcome = HeadlessOutcome(result, error)

    def _on_question(self, question: str) -> None:
        if self._input_is_over:
            self._session.headless.withdraw(question)
        else:
            self._open.add(question)


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class UserMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message as Claude Code takes it: a text, or a list of texts."""

    content: str | list[TextPart]
    role: Literal["user"] = "user"


class UserRequest(msgspec.Struct, tag_field="type", tag="user", forbid_unknown_fields=True):
    """A message, as `text` or in Claude Code's shape; with `steer` one for the turn under way, which the model reads
    after the tool calls that run. The last three are of that shape, and say nothing here."""

    text: str = ""
    steer: bool = False
    message: UserMessage | None = None
    session_id: str = ""
    parent_tool_use_id: str | None = None
    uuid: str | None = None


class InterruptRequest(msgspec.Struct, tag_field="type", tag="interrupt", forbid_unknown_fields=True):
    pass


class AnswerRequest(msgspec.Struct, tag_field="type", tag="answer", forbid_unknown_fields=True):
    id: str
    decision: str = ""
    text: str = ""
    arguments: dict[str, Any] | None = None


PrintRequest: TypeAlias = UserRequest | InterruptRequest | AnswerRequest
_decoder: Final[msgspec.json.Decoder[PrintRequest]] = msgspec.json.Decoder(
    UserRequest | InterruptRequest | AnswerRequest
)
_HINT: Final = (
    'write {"type": "user", "text": "…"}, {"type": "interrupt"} or {"type": "answer", "id": "…", "decision": "…"}'
)


def read_request(line: bytes) -> PrintRequest:
    """Read the request of one line; ConfigError says what is wrong with it."""
    try:
        request = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"a line of the input is no request: {error}", hint=_HINT, key="input") from None
    if isinstance(request, UserRequest) and request.message is not None:
        content = request.message.content
        request.text = content if isinstance(content, str) else "\n\n".join(part.text for part in content)
    if isinstance(request, UserRequest) and not request.text.strip():
        raise ConfigError("the text of a message is empty", hint=_HINT, key="input")
    return request
