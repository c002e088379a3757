"""OpenAI's responses, written."""

from __future__ import annotations

from typing import Any, Final

from lyra.models.answers.writer import AnswerHead, VendorAnswerWriter, answer_event, answer_thoughts, arguments_text
from lyra.models.stream import CUT_BY_BUDGET, Completion
from lyra.models.usage import TokenUsage

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

    def whole(self, answer: Completion) -> dict[str, Any]:
        output = [self._reasoning(str(part["thinking"])) for part in answer_thoughts(answer)]
        if answer.text or not answer.tool_calls:
            output.append(self._text_item(answer.text, "completed"))
        output += [
            self._call_item(index, call.id, call.name, arguments_text(call), "completed")
            for index, call in enumerate(answer.tool_calls)
        ]
        return self._response(output, answer.stop_reason, answer.usage)

    def _started(self) -> bytes:
        response = self._response([], "", None)
        return self._sse("response.created", response=response) + self._sse("response.in_progress", response=response)

    def _text_piece(self, text: str) -> bytes:
        return self._say("message", text)

    def _thought(self, text: str, signature: str) -> bytes:
        return self._say("reasoning", text) if text else b""

    def _tool_started(self, index: int, call_id: str, name: str) -> bytes:
        closed = self._close()
        self._open = "function_call"
        item = self._call_item(self._calls, call_id, name, "", "in_progress")
        self._calls += 1
        return closed + self._added(item)

    def _tool_piece(self, index: int, text: str) -> bytes:
        self._text.append(text)
        return self._on_item("response.function_call_arguments.delta", delta=text)

    def _tool_ended(self) -> bytes:
        return self._close()

    def _finished(self, reason: str) -> bytes:
        closed = self._close()
        response = self._response(self._output, reason, self._usage)
        return closed + self._sse(f"response.{response['status']}", response=response)

    def failed(self, code: str, message: str) -> bytes:
        """An error in the middle of a stream."""
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
            return self._added({**self._reasoning(""), "summary": []}) + self._on_item(
                "response.reasoning_summary_part.added", summary_index=0, part=part
            )
        item = {**self._text_item("", "in_progress"), "content": []}
        return self._added(item) + self._on_item("response.content_part.added", content_index=0, part=_part(""))

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

    def _added(self, item: dict[str, Any]) -> bytes:
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
            "usage": None if usage is None else _usage(usage),
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: TokenUsage) -> dict[str, Any]:
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
