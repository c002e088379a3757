"""What one run asks for, read from its RunAgentInput: what is new in the conversation, answers, tools, the state.

A front end sends the whole conversation each time. The thread's own transcript is what counts: of the input, the user
messages at its end are new, tool messages answer calls that wait for them, and earlier messages fill a thread that is
empty. A run that continues answers every open interrupt once and no other. Calls of the front end's own tools are open
questions to the kernel, too; for the protocol they are no interrupts (`QuestionsToPage`). Nothing here talks to an
agent.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.agents.session.shared import questions_below
from lyra.agents.session.toolset import client_answer, client_call_id, client_tool_rows
from lyra.core.checking.check import is_nested_deeper
from lyra.core.limits import SERVER_ID_CHARS_MAX, VALUE_DEPTH_MAX
from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import ConfigError, InvalidTransition
from lyra.kernel.interrupts.interrupt import DECISIONS_IN_DOUBT, KINDS, Answer, Interrupt
from lyra.server.http.compat import image_part
from lyra.tools.permissions.decision import ANSWERS

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


CONTEXT_BEGIN: Final = "<front-end-context>\n"
CONTEXT_END: Final = "</front-end-context>\n\n"
_END_MARK: Final = CONTEXT_END.rstrip()
_NOT_END_MARK: Final = "<\\/front-end-context>"  # in the text between the marks
_TOOLS_MAX: Final = 128
_INSTRUCTIONS: Final = ("system", "developer")
_STOP: Final = "stop"
_ON_DISCONNECT: Final = (_STOP, "detach")


class AguiBody(msgspec.Struct, rename="camel"):
    """RunAgentInput of the AG-UI protocol; see its specification. Other fields are taken and not used."""

    thread_id: str
    run_id: str
    messages: list[dict[str, Any]]
    state: Any = None
    tools: list[dict[str, Any]] | None = None
    context: list[dict[str, Any]] | None = None
    forwarded_props: Any = None
    resume: list[dict[str, Any]] | None = None


class AguiRequest:
    """See the module."""

    __slots__ = (
        "context",
        "messages",
        "on_disconnect",
        "parent_run_id",
        "resume",
        "run_id",
        "state",
        "thread_id",
        "tools",
    )

    def __init__(self, given: Any) -> None:
        self.thread_id = _id(given.thread_id, "threadId")
        self.run_id = _id(given.run_id, "runId")
        self.parent_run_id: str | None = given.parent_run_id
        self.messages: list[Any] = given.messages
        self.resume: list[Any] = given.resume or []
        self.context: list[Any] = given.context or []
        tools = given.tools or []
        if len(tools) > _TOOLS_MAX:
            raise ConfigError(f"a run declares at most {_TOOLS_MAX} tools", key="tools")
        rows = []
        for tool in tools:
            schema = tool.parameters if tool.parameters is not None else {}
            if not isinstance(schema, dict) or is_nested_deeper(schema, VALUE_DEPTH_MAX):
                raise ConfigError("the parameters of a tool are a JSON schema of an object", key="tools")
            rows.append({"name": tool.name, "description": tool.description, "schema": {"type": "object", **schema}})
        self.tools = client_tool_rows(rows)
        self.state = _state(given.state)
        # What becomes of the turn when the client closes the stream: `forwardedProps.lyra.onDisconnect`.
        props = given.forwarded_props
        own = props.get("lyra") if isinstance(props, dict) else None
        word = own.get("onDisconnect", _STOP) if isinstance(own, dict) else _STOP
        if word not in _ON_DISCONNECT:
            raise ConfigError(f"onDisconnect is {' or '.join(_ON_DISCONNECT)}", key="forwardedProps")
        self.on_disconnect = str(word)

    @property
    def _new_from(self) -> int:
        """The index of the first message that is new: those of the user at the end, with instructions among them."""
        index = len(self.messages)
        while index and self.messages[index - 1].role in ("user", *_INSTRUCTIONS):
            index -= 1
        return index

    @property
    def users(self) -> list[Any]:
        """The messages of the user, in order."""
        return [message for message in self.messages if message.role == "user"]

    @property
    def has_new_content(self) -> bool:
        parts = self._new_parts()
        return any(part["type"] != "text" or part["text"].strip() for part in parts)

    @property
    def new_text(self) -> str:
        """The text of what is new, without what stands before it."""
        return "".join(part["text"] for part in self._new_parts() if part["type"] == "text")

    @property
    def ends_with_answer(self) -> bool:
        """Whether the front end has a message of the agent's as its last, such as the part that it got of one."""
        return bool(self.messages) and self.messages[-1].role == "assistant"

    def _new_parts(self) -> list[dict[str, Any]]:
        new = self.messages[self._new_from :]
        return [part for message in new if message.role == "user" for part in _parts(message.content)]

    def tool_messages(self) -> dict[str, Any]:
        """Return the last tool message for each call."""
        return {message.tool_call_id: message for message in self.messages if message.role == "tool"}

    def new_content(self, *, state_text: str = "") -> list[dict[str, Any]] | str:
        """Return what the user says now. Instructions, context and changed state stand before it, between marks that no
        text can close before its end, and that no user can write without having them told as its own words."""
        new, parts = self.messages[self._new_from :], self._new_parts()
        lines = [f"{row.description}: {row.value}" for row in self.context]
        lines += [message.content for message in new if message.role in _INSTRUCTIONS]
        lines += [state_text] if state_text else []
        begins_alike = bool(parts) and parts[0]["type"] == "text" and parts[0]["text"].startswith(CONTEXT_BEGIN)
        if lines or begins_alike:
            between = "\n".join(lines).replace(_END_MARK, _NOT_END_MARK)
            parts.insert(0, {"type": "text", "text": f"{CONTEXT_BEGIN}{between}\n{CONTEXT_END}"})
        if all(part["type"] == "text" for part in parts):
            return "".join(part["text"] for part in parts)
        return parts

    def history(self) -> list[Message]:
        """Return what was said before, for a thread that knows nothing yet. Calls without a result are left out."""
        results = self.tool_messages()
        history: list[Message] = []
        for message in self.messages[: self._new_from]:
            if message.role == "user":
                history.append(Message("user", tuple(_parts(message.content))))
            elif message.role == "assistant":
                history += _assistant(message, results)
        return history


def _assistant(message: Any, results: Mapping[str, Any]) -> list[Message]:
    """Return a message of the assistant, and the one with the results of its calls."""
    calls = [call for call in message.tool_calls or () if call.id in results]
    if not calls:
        return [Message("assistant", message.content)] if message.content else []
    asked = tuple(ToolCall(call.id, call.function.name, _arguments(call.function.arguments)) for call in calls)
    answered = tuple(
        ToolResult(call.id, call.name, tool_output(results[call.id]), bool(results[call.id].error)) for call in asked
    )
    return [Message("assistant", message.content or "", tool_calls=asked), Message("tool", tool_results=answered)]


def tool_output(message: Any) -> str:
    """Return the text of a tool message; parts that are not text are named."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text if part.type == "text" else f"[{part.type}]" for part in message.content)


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part) for part in content]


def _part(part: Any) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    if part.type == "image" and part.source.type == "data":
        return image_part(part.source.mime_type, part.source.value)
    raise ConfigError(
        f"a part of a message is text, or an image with its data; this one is {part.type}", key="messages"
    )


def _id(text: str, name: str) -> str:
    if not 0 < len(text) <= SERVER_ID_CHARS_MAX or not text.isprintable():
        raise ConfigError(f"{name} is printable text of 1 to {SERVER_ID_CHARS_MAX} characters", key=name)
    return text


def _state(state: Any) -> dict[str, Any]:
    if state is None:
        return {}
    if not isinstance(state, dict):
        raise ConfigError("the state is an object", key="state")
    if is_nested_deeper(state, VALUE_DEPTH_MAX):
        raise ConfigError(f"the state is nested more than {VALUE_DEPTH_MAX} levels deep", key="state")
    return state


# ---------------------------------------------------------------- sdk
# The types of the AG-UI protocol, from the official package, loaded at the first request.

_SHOWN_CHARS_MAX = 200


@cache
def agui_types() -> Any:
    """Return the module `ag_ui.core`."""
    try:
        from ag_ui import core
    except ImportError:
        raise ConfigError("AG-UI needs the agui extra", hint="pip install 'lyra-agents[agui]'") from None
    return core


def read_input(body: bytes) -> Any:
    """Return the RunAgentInput of a request; ConfigError, which names the place, for anything else."""
    types = agui_types()
    from pydantic import ValidationError

    try:
        return types.RunAgentInput.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:_SHOWN_CHARS_MAX]
        reason = str(first["msg"])[:_SHOWN_CHARS_MAX]
        raise ConfigError(f"the body is no RunAgentInput: {place or 'body'}: {reason}", key=place or None) from None


def event_bytes(event: Any) -> bytes:
    """One event as a server-sent event."""
    data: str = event.model_dump_json(by_alias=True)
    return b"data: " + data.encode("utf-8", "replace") + b"\n\n"


_NO_RESULT: Final = "the front end gave no result"
_FIELDS: Final = ("text", "approved", "decision", "data")
_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "confirmation": {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "decision": {"type": "string", "enum": list(ANSWERS)},
            "text": {"type": "string"},
            "data": {"type": "object", "properties": {"arguments": {"type": "object"}}},
        },
    },
    "in_doubt": {
        "type": "object",
        "properties": {"decision": {"type": "string", "enum": list(DECISIONS_IN_DOUBT)}, "data": {}},
        "required": ["decision"],
    },
}
_ANY_ANSWER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "approved": {"type": "boolean"}, "data": {}},
}


class QuestionsToPage(NamedTuple):
    """What a thread waits for."""

    interrupts: list[Interrupt]  # a person has to answer
    calls: dict[str, Interrupt]  # by the id of the tool call that the front end has to run

    @property
    def total(self) -> int:
        return len(self.interrupts) + len(self.calls)


def open_questions(kernel: Kernel, pid: str) -> QuestionsToPage:
    """Return the open questions of a process and of those below it."""
    interrupts: list[Interrupt] = []
    calls: dict[str, Interrupt] = {}
    for interrupt in questions_below(kernel, pid):
        call_id = client_call_id(interrupt)
        if call_id:
            calls[call_id] = interrupt
        else:
            interrupts.append(interrupt)
    return QuestionsToPage(interrupts, calls)


async def answer_interrupts(kernel: Kernel, interrupts: list[Interrupt], entries: Iterable[Any]) -> None:
    """Answer the interrupts of a thread; InvalidTransition where the entries do not cover them exactly."""
    entries_by_id: dict[str, Any] = {}
    for entry in entries:
        if entry.interrupt_id in entries_by_id:
            raise InvalidTransition(f"the interrupt {entry.interrupt_id[:80]!r} is answered twice")
        entries_by_id[entry.interrupt_id] = entry
    known = {interrupt.id for interrupt in interrupts}
    unknown = [interrupt_id for interrupt_id in entries_by_id if interrupt_id not in known]
    if unknown:
        raise InvalidTransition(f"no open interrupt {unknown[0][:80]!r} in this thread")
    left = [interrupt_id for interrupt_id in known if interrupt_id not in entries_by_id]
    if left:
        raise InvalidTransition(
            f"{len(left)} open interrupts have no answer", hint=f"a run resumes all of them: {', '.join(sorted(left))}"
        )
    answers = {interrupt.id: _answer(interrupt, entries_by_id[interrupt.id]) for interrupt in interrupts}
    for interrupt_id, answer in answers.items():  # all of them are valid by now
        if answer is None:
            await kernel.interrupts.cancel_interrupt(interrupt_id, "cancelled in the front end")
        else:
            await kernel.resolve_interrupt(interrupt_id, answer)


def _answer(interrupt: Interrupt, entry: Any) -> Answer | None:
    """Return the answer that an entry gives; None where the question is to be cancelled."""
    if entry.status == "cancelled":
        return Answer(approved=False) if interrupt.kind == "confirmation" else None
    answer = Answer.of(_fields(interrupt, entry.payload))
    if interrupt.kind == "in_doubt" and answer.decision not in DECISIONS_IN_DOUBT:
        raise ConfigError(f"the answer is one of {', '.join(DECISIONS_IN_DOUBT)}", key="resume")
    if answer.empty and KINDS[interrupt.kind].require_response:
        raise ConfigError(f"the answer to {interrupt.id} is empty", key="resume")
    return answer


def _fields(interrupt: Interrupt, payload: Any) -> dict[str, Any]:
    if isinstance(payload, bool):
        return {"approved": payload}
    if isinstance(payload, str):
        is_word = payload in (ANSWERS if interrupt.kind == "confirmation" else DECISIONS_IN_DOUBT)
        return {"decision": payload} if is_word and interrupt.kind in _SCHEMAS else {"text": payload}
    if isinstance(payload, Mapping) and payload and set(payload) <= set(_FIELDS):
        return dict(payload)
    return {"data": payload}


async def answer_calls(kernel: Kernel, calls: Mapping[str, Interrupt], messages: Mapping[str, Any]) -> None:
    """Give the results of the front end's tools to the calls that wait for them; one without a result fails."""
    for call_id, interrupt in calls.items():
        message = messages.get(call_id)
        if message is None:
            await kernel.resolve_interrupt(interrupt.id, client_answer("", _NO_RESULT))
        else:
            await kernel.resolve_interrupt(interrupt.id, client_answer(tool_output(message), message.error or ""))


def interrupt_of(interrupt: Interrupt, call_id: str) -> Any:
    """Return the interrupt in the form of the protocol."""
    expires_at = interrupt.due
    return agui_types().Interrupt(
        id=interrupt.id,
        reason=f"lyra:{interrupt.kind}",
        message=f"{interrupt.question}\n{interrupt.message}".strip(),
        tool_call_id=call_id or None,
        response_schema=_SCHEMAS.get(interrupt.kind, _ANY_ANSWER),
        expires_at=None if expires_at is None else _iso(expires_at),
    )


def _iso(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
