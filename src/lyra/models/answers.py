"""Answers of models as the vendors' servers write them: as one document, or as server-sent events.

The other side of `lyra.models.providers`, which read them. Used by the gateway, where a provider speaks another format
than its client, by the server for agents in a model's place, and by the mock server of `lyra.testing`. A
`VendorAnswerWriter` writes one answer in a vendor's format, from the events of its stream or from the whole of it.
`event` is the table of what becomes of an event; a format writes a method for each kind, and `whole` for the document.
Three formats: OpenAI's chat completions, Anthropic's messages and OpenAI's responses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.tool import ToolCall
from lyra.models.stream import (
    CUT_BY_BUDGET,
    Completion,
    Finished,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolDelta,
    ToolEnd,
    ToolStart,
    UsageSeen,
)


class AnswerHead(NamedTuple):
    """What an answer says of itself: its model, the word in its ids, when it was made (seconds), and the tokens that
    went in, as far as they are known when it begins. `thought_signature` stands where a thought has none."""

    model: str
    word: str
    created: int
    input_tokens: int = 0
    thought_signature: str = ""
    more: dict[str, Any] = {}  # noqa: RUF012 (never changed)


class VendorAnswerWriter(ABC):
    """Writes one answer. Of an event for which the format has no word, no bytes are written."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._usage = TokenUsage(head.input_tokens)  # as the stream told it last

    def event(self, event: StreamEvent) -> bytes:
        """Return the bytes of one event of a streamed answer."""
        match event:
            case Started():
                return self._write_start()
            case TextDelta(text):
                return self._text_piece(text)
            case ThinkingDelta(text, signature):
                return self._write_thought(text, signature)
            case ToolStart(index, call_id, name):
                return self._tool_started(index, call_id, name)
            case ToolDelta(index, text):
                return self._tool_piece(index, text)
            case ToolEnd():
                return self._tool_ended()
            case UsageSeen(usage):
                self._usage = usage
                return b""
            case Finished(reason):
                return self._write_end(reason)

    @abstractmethod
    def render_document(self, answer: Completion) -> dict[str, Any]:
        """Return the whole answer as one document."""

    @abstractmethod
    def _write_start(self) -> bytes: ...

    @abstractmethod
    def _text_piece(self, text: str) -> bytes: ...

    @abstractmethod
    def _write_thought(self, text: str, signature: str) -> bytes: ...

    @abstractmethod
    def _tool_started(self, index: int, call_id: str, name: str) -> bytes: ...

    @abstractmethod
    def _tool_piece(self, index: int, text: str) -> bytes: ...

    @abstractmethod
    def _tool_ended(self) -> bytes: ...

    @abstractmethod
    def _write_end(self, reason: str) -> bytes: ...


def arguments_text(call: ToolCall) -> str:
    return msgspec.json.encode(call.arguments).decode()


def answer_thoughts(answer: Completion) -> list[dict[str, Any]]:
    """Return the parts of an answer that are thoughts."""
    content = answer.message.content
    return [] if isinstance(content, str) else [part for part in content if part["type"] == "thinking"]


def answer_event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    text = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + text + b"\n\n"


_STOPS: Final[dict[str, str]] = {
    "end": "stop",
    "tool_calls": "tool_calls",
    "max_tokens": "length",
    CUT_BY_BUDGET: "length",
    "stop_sequence": "stop",
    "content_filter": "content_filter",
    "pause": "stop",
}


class ChatWriter(VendorAnswerWriter):
    """`with_usage`: a stream ends with a chunk that tells the usage."""

    def __init__(self, head: AnswerHead, *, with_usage: bool) -> None:
        super().__init__(head)
        self._with_usage = with_usage

    def render_document(self, answer: Completion) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        thinking = "".join(str(part["thinking"]) for part in answer_thoughts(answer))
        if thinking:
            message["reasoning_content"] = thinking
        if answer.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
                for call in answer.tool_calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.stop_reason]}
        return {**self._document("chat.completion"), "choices": [choice], "usage": _usage(answer.usage)}

    def _write_start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def _text_piece(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def _write_thought(self, text: str, signature: str) -> bytes:
        return self._chunk({"reasoning_content": text}) if text else b""

    def _tool_started(self, index: int, call_id: str, name: str) -> bytes:
        begun = {"index": index, "id": call_id, "type": "function"}
        return self._chunk({"tool_calls": [{**begun, "function": {"name": name, "arguments": ""}}]})

    def _tool_piece(self, index: int, text: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})

    def _tool_ended(self) -> bytes:
        return b""

    def _write_end(self, reason: str) -> bytes:
        told = self._chunk({}, _STOPS[reason])
        if self._with_usage:
            usage_chunk = {"choices": [], "usage": _usage(self._usage)}
            told += answer_event({**self._document("chat.completion.chunk"), **usage_chunk})
        return told + answer_event("[DONE]")

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._with_usage else {}
        return answer_event({**self._document("chat.completion.chunk"), "choices": [choice], **usage})

    def _document(self, kind: str) -> dict[str, Any]:
        head = self._head
        return {
            "id": f"chatcmpl-{head.word}",
            "object": kind,
            "created": head.created,
            "model": head.model,
            **head.more,
        }


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.total_input,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_input + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


_MESSAGES_STOPS: Final[dict[str, str]] = {
    "end": "end_turn",
    "tool_calls": "tool_use",
    "max_tokens": "max_tokens",
    CUT_BY_BUDGET: "max_tokens",
    "stop_sequence": "stop_sequence",
    "content_filter": "refusal",
    "pause": "pause_turn",
}


class MessagesWriter(VendorAnswerWriter):
    """In a stream, blocks open and close as the kind of what is said changes."""

    def __init__(self, head: AnswerHead) -> None:
        super().__init__(head)
        self._index = -1
        self._open = ""  # the kind of the block that is open
        self._is_signed = False  # the thought that is open has its signature

    def render_document(self, answer: Completion) -> dict[str, Any]:
        content: list[dict[str, Any]] = [
            {
                "type": "thinking",
                "thinking": part["thinking"],
                "signature": part.get("signature") or self._head.thought_signature,
            }
            for part in answer_thoughts(answer)
        ]
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in answer.tool_calls
        ]
        return {**self._document(answer.usage), "content": content, "stop_reason": _MESSAGES_STOPS[answer.stop_reason]}

    def _write_start(self) -> bytes:
        return _event("message_start", message={**self._document(self._usage), "content": [], "stop_reason": None})

    def _text_piece(self, text: str) -> bytes:
        return self._block("text", {"text": ""}) + self._delta(type="text_delta", text=text)

    def _write_thought(self, text: str, signature: str) -> bytes:
        told = self._block("thinking", {"thinking": "", "signature": ""})
        if text:
            told += self._delta(type="thinking_delta", thinking=text)
        if signature:
            self._is_signed = True
            told += self._delta(type="signature_delta", signature=signature) + self._close()
        return told

    def _tool_started(self, index: int, call_id: str, name: str) -> bytes:
        return self._close() + self._block("tool_use", {"id": call_id, "name": name, "input": {}})

    def _tool_piece(self, index: int, text: str) -> bytes:
        return self._delta(type="input_json_delta", partial_json=text)

    def _tool_ended(self) -> bytes:
        return self._close()

    def _write_end(self, reason: str) -> bytes:
        delta = {"stop_reason": _MESSAGES_STOPS[reason], "stop_sequence": None}
        told = _event("message_delta", delta=delta, usage=_messages_usage(self._usage))
        return self._close() + told + _event("message_stop")

    def _block(self, kind: str, fields: dict[str, Any]) -> bytes:
        if self._open == kind:
            return b""
        closed = self._close()
        self._open = kind
        self._is_signed = False
        self._index += 1
        return closed + _event("content_block_start", index=self._index, content_block={"type": kind, **fields})

    def _delta(self, **delta: Any) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        kind, self._open = self._open, ""
        if not kind:
            return b""
        signed = b""
        if kind == "thinking" and not self._is_signed and self._head.thought_signature:
            signed = self._delta(type="signature_delta", signature=self._head.thought_signature)
        return signed + _event("content_block_stop", index=self._index)

    def _document(self, usage: TokenUsage) -> dict[str, Any]:
        return {
            "id": f"msg_{self._head.word}",
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "stop_sequence": None,
            "usage": _messages_usage(usage),
        }


def _messages_usage(usage: TokenUsage) -> dict[str, Any]:
    """This format leaves cached tokens out of `input_tokens`."""
    read, write = usage.cache_read_tokens, usage.cache_write_tokens
    return {
        "input_tokens": usage.input_tokens if usage.cached_apart else max(usage.input_tokens - read - write, 0),
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return answer_event({"type": kind, **fields}, kind)


_INCOMPLETE: Final[dict[str, str]] = {
    "max_tokens": "max_output_tokens",
    CUT_BY_BUDGET: "max_output_tokens",
    "content_filter": "content_filter",
}


class ResponsesWriter(VendorAnswerWriter):
    """In a stream, items open and close as the kind of what is said changes; the last event repeats them all."""

    def __init__(self, head: AnswerHead) -> None:
        super().__init__(head)
        self._sequence = -1
        self._output: list[dict[str, Any]] = []
        self._open = ""  # the kind of the item that is open
        self._text: list[str] = []
        self._calls = 0

    def render_document(self, answer: Completion) -> dict[str, Any]:
        output = [self._reasoning(str(part["thinking"])) for part in answer_thoughts(answer)]
        if answer.text or not answer.tool_calls:
            output.append(self._text_item(answer.text, "completed"))
        output += [
            self._call_item(index, call.id, call.name, arguments_text(call), "completed")
            for index, call in enumerate(answer.tool_calls)
        ]
        return self._response(output, answer.stop_reason, answer.usage)

    def _write_start(self) -> bytes:
        response = self._response([], "", None)
        return self._sse("response.created", response=response) + self._sse("response.in_progress", response=response)

    def _text_piece(self, text: str) -> bytes:
        return self._say("message", text)

    def _write_thought(self, text: str, signature: str) -> bytes:
        return self._say("reasoning", text) if text else b""

    def _tool_started(self, index: int, call_id: str, name: str) -> bytes:
        closed = self._close()
        self._open = "function_call"
        item = self._call_item(self._calls, call_id, name, "", "in_progress")
        self._calls += 1
        return closed + self._add_item(item)

    def _tool_piece(self, index: int, text: str) -> bytes:
        self._text.append(text)
        return self._on_item("response.function_call_arguments.delta", delta=text)

    def _tool_ended(self) -> bytes:
        return self._close()

    def _write_end(self, reason: str) -> bytes:
        closed = self._close()
        response = self._response(self._output, reason, self._usage)
        return closed + self._sse(f"response.{response['status']}", response=response)

    def write_error(self, code: str, message: str) -> bytes:
        """Return an error in the middle of a stream."""
        response = self._response(self._output, "", None)
        error = {"code": code, "message": message}
        return self._sse("response.failed", response={**response, "status": "failed", "error": error})

    def _say(self, kind: str, text: str) -> bytes:
        begun = b""
        if self._open != kind:
            begun = self._close()
            self._open = kind
            begun += self._begin(kind)
        self._text.append(text)
        if kind == "reasoning":
            return begun + self._on_item("response.reasoning_summary_text.delta", summary_index=0, delta=text)
        return begun + self._on_item("response.output_text.delta", content_index=0, delta=text, logprobs=[])

    def _begin(self, kind: str) -> bytes:
        if kind == "reasoning":
            part = {"type": "summary_text", "text": ""}
            return self._add_item({**self._reasoning(""), "summary": []}) + self._on_item(
                "response.reasoning_summary_part.added", summary_index=0, part=part
            )
        item = {**self._text_item("", "in_progress"), "content": []}
        return self._add_item(item) + self._on_item("response.content_part.added", content_index=0, part=_part(""))

    def _close(self) -> bytes:
        kind, text = self._open, "".join(self._text)
        self._open, self._text = "", []
        if not kind:
            return b""
        if kind == "message":
            item = self._text_item(text, "completed")
            told = self._on_item("response.output_text.done", content_index=0, text=text, logprobs=[])
            told += self._on_item("response.content_part.done", content_index=0, part=_part(text))
        elif kind == "reasoning":
            item = self._reasoning(text)
            told = self._on_item("response.reasoning_summary_text.done", summary_index=0, text=text)
            part = {"type": "summary_text", "text": text}
            told += self._on_item("response.reasoning_summary_part.done", summary_index=0, part=part)
        else:
            item = {**self._output[-1], "arguments": text, "status": "completed"}
            told = self._on_item("response.function_call_arguments.done", name=item["name"], arguments=text)
        self._output[-1] = item
        return told + self._sse("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _add_item(self, item: dict[str, Any]) -> bytes:
        self._output.append(item)
        return self._sse("response.output_item.added", output_index=len(self._output) - 1, item=item)

    def _on_item(self, kind: str, **fields: Any) -> bytes:
        return self._sse(kind, item_id=self._output[-1]["id"], output_index=len(self._output) - 1, **fields)

    def _sse(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return answer_event({"type": kind, "sequence_number": self._sequence, **fields}, kind)

    def _text_item(self, text: str, status: str) -> dict[str, Any]:
        head = {"id": f"msg_{self._head.word}", "type": "message", "role": "assistant", "status": status}
        return {**head, "content": [_part(text)]}

    def _reasoning(self, text: str) -> dict[str, Any]:
        item: dict[str, Any] = {
            "id": f"rs_{self._head.word}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": text}],
        }
        if self._head.thought_signature:
            item["encrypted_content"] = self._head.thought_signature
        return item

    def _call_item(self, index: int, call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
        return {
            "id": f"fc_{self._head.word}_{index}",
            "type": "function_call",
            "call_id": call_id,
            "name": name,
            "arguments": arguments,
            "status": status,
        }

    def _response(self, output: list[dict[str, Any]], stop: str, usage: TokenUsage | None) -> dict[str, Any]:
        reason = _INCOMPLETE.get(stop)
        return {
            "id": f"resp_{self._head.word}",
            "object": "response",
            "created_at": self._head.created,
            "model": self._head.model,
            "status": "incomplete" if reason else "completed" if stop else "in_progress",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": None,
            "metadata": {},
            "output": output,
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None if usage is None else _responses_usage(usage),
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _responses_usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.total_input,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_input + usage.output_tokens,
    }


def vendor_writer(wire: str, head: AnswerHead, *, with_usage: bool = False) -> VendorAnswerWriter:
    """Return the writer of one answer: `wire` is chat, messages or responses."""
    if wire == "chat":
        return ChatWriter(head, with_usage=with_usage)
    return MessagesWriter(head) if wire == "messages" else ResponsesWriter(head)
