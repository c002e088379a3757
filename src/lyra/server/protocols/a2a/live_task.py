"""LiveTask: one task while the server runs: its record, what its agent is writing, and the readers of both.

A reader holds no queue. It remembers how much it has read: the version of the status, and a place in the text; a text
that begins anew has another draft number. A slow reader gets what it missed in one piece, so that it costs no memory
and holds nothing up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.a2a.content import data_of_parts, text_of_parts
from lyra.a2a.sdk import from_json, messages
from lyra.agents.session.events import AgentEvent, Restart, Text, ToolStarted
from lyra.core.limits import SERVER_HEARTBEAT_S, SERVER_STREAM_BYTES_MAX
from lyra.errors import LyraError
from lyra.kernel.interrupts.interrupt import DECISIONS_IN_DOUBT, Interrupt
from lyra.kernel.process.process import Exit, Process
from lyra.server.http.problems import problem_of
from lyra.server.owners import OwnedPid
from lyra.server.protocols.a2a.errors import RpcError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_USAGE: Final = "usage"  # in a task's metadata


class ReaderPlace(msgspec.Struct):
    """How much a reader has read."""

    version: int  # of the status
    draft: int
    chars: int  # of the draft


class LiveTask:
    __slots__ = (
        "_draft",
        "_is_fresh",
        "_kernel",
        "_measured",
        "_text",
        "_version",
        "_waiters",
        "is_streamed",
        "pid",
        "record",
    )

    def __init__(self, kernel: Kernel, pid: str, record: A2aRecord) -> None:
        self._kernel = kernel
        self.pid = pid
        self.record = record
        self.is_streamed = True  # the answer is text, which is told as it comes
        self._text = ""
        self._draft = 0
        self._is_fresh = False  # the next piece of text begins another draft
        self._version = 0
        self._measured = (0, 0)  # how many messages of the record were measured, and their bytes
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def owner(self) -> str:
        owned = OwnedPid.read(self.pid)
        return "" if owned is None else owned.user_id

    @property
    def question(self) -> Interrupt | None:
        """Return what a person is asked now."""
        process = self._kernel.processes.get(self.pid)
        if self.record.has_ended or process is None:
            return None
        kernel = self._kernel
        asked = [kernel.interrupts._oldest(member.pid) for member in _tree(process)]
        pending = [question for question in asked if question is not None]
        return min(pending, key=lambda question: question.created_at) if pending else None

    @property
    def is_settled(self) -> bool:
        """Whether nothing happens any more, or not before a person has answered."""
        return self.record.has_ended or self.question is not None

    @property
    def changed_at(self) -> float:
        question = self.question
        return self.record.changed_at if question is None else question.created_at

    @property
    def size_bytes(self) -> int:
        """About how much its messages and its answer take."""
        count = len(self.record.messages)
        if self._measured[0] != count:
            self._measured = count, len(msgspec.json.encode(self.record.messages))
        return self._measured[1] + max(len(self.record.answer), len(self._text))

    def hear(self, event: AgentEvent) -> None:
        """Something that the agent says or does on its way."""
        kind = type(event)
        if kind is Restart or kind is ToolStarted:  # what was written so far is not the answer
            self._is_fresh = True
        elif kind is Text and self.is_streamed and len(self._text) < SERVER_STREAM_BYTES_MAX:
            assert isinstance(event, Text)
            if self._is_fresh:
                self._draft, self._text, self._is_fresh = self._draft + 1, "", False
            self._text += event.delta
            self._wake()

    def on_changed(self) -> None:
        """Note that the status is another one, or a question was put or answered."""
        self._version += 1
        if self.record.state == "completed" and not self.record.is_data:
            self._draft += self.record.answer != self._text
            self._text = self.record.answer  # one text, not two that are alike
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the next change; whether one came in time."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    async def until_ended(self) -> None:
        while not self.record.has_ended:
            await self.wait()

    async def until_settled(self) -> None:
        while not self.is_settled:
            await self.wait()

    def status(self) -> Any:
        record, question = self.record, self.question
        word = record.state if question is None else "input_required"
        status = messages().TaskStatus(state=STATES[word][0])
        status.timestamp.FromMilliseconds(int(1000 * (record.changed_at if question is None else question.created_at)))
        if question is not None:
            asked = agent_message(record, question.id, question_text(question), kind=question.kind)
            status.message.CopyFrom(asked)
        elif record.reason:
            status.message.CopyFrom(agent_message(record, f"{record.id}.end", record.reason, code=record.code))
        return status

    def view(self, history_length: int | None = None, *, with_artifacts: bool = True) -> Any:
        """Return the Task that a client reads."""
        record = self.record
        task = messages().Task(id=record.id, context_id=record.context_id, status=self.status())
        task.history.extend(record.history(history_length))
        if with_artifacts:
            task.artifacts.extend(record.artifacts(self._text))
        if record.usage:
            task.metadata.update({_USAGE: record.usage})
        return task

    def _first_view(self, history_length: int | None) -> Any:
        """Return the Task as it was when the message that began it had come."""
        record = self.record
        status = messages().TaskStatus(state=STATES["submitted"][0])
        task = messages().Task(id=record.id, context_id=record.context_id, status=status)
        task.status.timestamp.FromMilliseconds(int(1000 * record.created_at))
        task.history.extend(record.history(history_length)[:1])
        return task

    async def read(
        self, *, past_questions: bool, from_start: bool = False, history_length: int | None = None
    ) -> AsyncGenerator[Any | None, None]:
        """Yield the task as it is, or with `from_start` as it was when it began; then what happens to it until its end.
        None is a sign of life. Without `past_questions` it ends when a person is asked, too."""
        place = ReaderPlace(0, 0, 0) if from_start else ReaderPlace(self._version, self._draft, len(self._text))
        has_ended = self.record.has_ended and not from_start
        task = self._first_view(history_length) if from_start else self.view(history_length)
        yield messages().StreamResponse(task=task)
        while not has_ended:
            has_ended = self.record.has_ended
            for event in self._since(place):
                yield event
            is_current = place == ReaderPlace(self._version, self._draft, len(self._text))
            if has_ended or (is_current and not past_questions and self.question is not None):
                return
            if is_current and not await self.wait(SERVER_HEARTBEAT_S):
                yield None

    def _since(self, place: ReaderPlace) -> list[Any]:
        """Return what a reader at that place has not read; its place moves on."""
        events = []
        is_last = self.record.state == "completed"
        if is_last or place.draft != self._draft or place.chars < len(self._text):
            is_same = place.chars > 0 and place.draft == self._draft and not (is_last and self.record.is_data)
            events.append(self._piece(self._text[place.chars :] if is_same else self._text, is_same, is_last=is_last))
        if place.version != self._version:
            module, record = messages(), self.record
            event = module.TaskStatusUpdateEvent(task_id=record.id, context_id=record.context_id, status=self.status())
            if record.usage:
                event.metadata.update({_USAGE: record.usage})
            events.append(module.StreamResponse(status_update=event))
        place.version, place.draft, place.chars = self._version, self._draft, len(self._text)
        return events

    def _piece(self, text: str, append: bool, *, is_last: bool) -> Any:
        """Return a piece of the answer, behind what was read (`append`) or in its place."""
        module, record = messages(), self.record
        is_data = is_last and record.is_data
        artifact = module.Artifact(
            artifact_id=ANSWER, name=ANSWER, parts=answer_parts(record.answer if is_data else text, is_data)
        )
        event = module.TaskArtifactUpdateEvent(
            task_id=record.id, context_id=record.context_id, artifact=artifact, append=append, last_chunk=is_last
        )
        return module.StreamResponse(artifact_update=event)


# Questions of a task to a person: which one is open, how it is shown, and what a message of the client answers.

_YES: Final = frozenset({"yes", "y", "allow", "approve", "approved", "confirm", "ok", "okay", "true"})
_NO: Final = frozenset({"no", "n", "deny", "denied", "refuse", "reject", "rejected", "cancel", "false"})


def _tree(process: Process) -> Iterator[Process]:
    if process.alive:
        yield process
    for child in list((process.children or {}).values()):
        yield from _tree(child)


def question_text(question: Interrupt) -> str:
    """Return the question as the client shows it to a person."""
    text = question.question or question.message or question.kind
    more = f"\n{question.message}" if question.question and question.message else ""
    hint = {"confirmation": "\n(yes or no)", "in_doubt": "\n(retry, skip or fail)"}.get(question.kind, "")
    return f"{text}{more}{hint}"


def answer_of(question: Interrupt, parts: Any) -> dict[str, Any]:
    """Return the answer to a question that the parts of a message give; RpcError where they give none."""
    text, data = text_of_parts(parts).strip(), data_of_parts(parts)
    if question.kind == "in_doubt":
        decision = str(data.get("decision") or text).strip().lower()
        if decision not in DECISIONS_IN_DOUBT:
            raise RpcError("invalid_params", f"answer one of {', '.join(DECISIONS_IN_DOUBT)}")
        return {"decision": decision}
    if question.kind == "confirmation":
        return {"text": text, "approved": _read_approval(text, data)}
    if not text and not data:
        raise RpcError("invalid_params", "the question is answered by text or data")
    return {"text": text, "data": data or None}


def _read_approval(text: str, data: dict[str, Any]) -> bool:
    given = data.get("approved")
    if isinstance(given, bool):
        return given
    word = text.lower().rstrip(".!")
    if word not in _YES | _NO:
        raise RpcError("invalid_params", 'answer yes or no, or send the data {"approved": true}')
    return word in _YES


# A2aRecord: what is kept of an A2A task: its agent, its messages, how it ended.

CANCELED: Final = "canceled"  # also the reason with which a task's process is stopped
ANSWER: Final = "answer"  # the id of the artifact
_REFUSED: Final = "message_refused"  # the status of a turn whose message a hook refused

# The word of a record → the state of the protocol, and whether the task has ended.
STATES: Final[dict[str, tuple[str, bool]]] = {
    "submitted": ("TASK_STATE_SUBMITTED", False),
    "working": ("TASK_STATE_WORKING", False),
    "input_required": ("TASK_STATE_INPUT_REQUIRED", False),
    "completed": ("TASK_STATE_COMPLETED", True),
    "failed": ("TASK_STATE_FAILED", True),
    "canceled": ("TASK_STATE_CANCELED", True),
    "rejected": ("TASK_STATE_REJECTED", True),
}


class A2aRecord(msgspec.Struct):
    """`messages` are in the protocol's JSON, the oldest first: the client's, and the questions that it answered."""

    id: str
    agent: str
    context_id: str
    created_at: float
    messages: list[dict[str, Any]]
    state: str = "submitted"
    reason: str = ""  # why there is no answer
    code: str = ""  # the same as a word
    answer: str = ""
    is_data: bool = False  # the answer is JSON
    usage: dict[str, Any] = {}
    changed_at: float = 0.0

    @property
    def has_ended(self) -> bool:
        return STATES[self.state][1]

    def has_message(self, message_id: str) -> bool:
        return any(message.get("messageId") == message_id for message in self.messages)

    def end(self, ended: Exit[Any], kernel: Kernel, now: float) -> None:
        """Take over how the process of the agent ended."""
        self.changed_at = now
        result = ended.result if isinstance(ended.result, dict) else {}
        if ended.reason == "normal":
            self.state, self.answer = "completed", str(result.get("text", ""))
            self.is_data, self.usage = bool(result.get("is_data")), dict(result.get("usage") or {})
            if result.get("status", "success") != "success":
                self.code, self.reason = str(result["status"]), "the answer was cut off at its longest"
        elif ended.error is None or ended.reason == CANCELED:
            self.state = "canceled"  # a task ends without an error only where it is ended, for whatever reason
            self.code, self.reason = ended.reason, "" if ended.reason == CANCELED else "the server stopped the task"
        else:
            problem = problem_of(ended.error, kernel)
            is_refused = isinstance(ended.error, LyraError) and ended.error.fields.get("status") == _REFUSED
            self.state = "rejected" if is_refused else "failed"
            self.code, self.reason = problem.code, problem.message

    def artifacts(self, text: str = "") -> list[Any]:
        """Return the answer as far as it is there; `text` is what has come of one that is being written."""
        if self.state == "completed":
            return [messages().Artifact(artifact_id=ANSWER, name=ANSWER, parts=answer_parts(self.answer, self.is_data))]
        if text:
            return [messages().Artifact(artifact_id=ANSWER, name=ANSWER, parts=answer_parts(text))]
        return []

    def history(self, length: int | None) -> list[Any]:
        """Return the last messages of the task; all of them where the client does not say how many."""
        rows = self.messages if length is None else self.messages[max(0, len(self.messages) - length) :]
        return [from_json(row, messages().Message()) for row in rows] if length != 0 else []


def answer_parts(text: str, is_data: bool = False) -> list[Any]:
    part_class = messages().Part
    if is_data:
        data = from_json(msgspec.json.decode(text), messages().Part().data)
        return [part_class(data=data, media_type="application/json")]
    return [part_class(text=text, media_type="text/plain")]


def agent_message(record: A2aRecord, message_id: str, text: str, **facts: str) -> Any:
    """Something that the agent's side says: a question, or why there is no answer."""
    module = messages()
    message = module.Message(
        message_id=message_id,
        context_id=record.context_id,
        task_id=record.id,
        role=module.ROLE_AGENT,
        parts=[module.Part(text=text)],
    )
    for name, fact in facts.items():
        message.metadata[name] = fact
    return message
