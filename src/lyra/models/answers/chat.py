"""OpenAI's chat completions, written."""

from __future__ import annotations

from typing import Any, Final

from lyra.models.answers.writer import AnswerHead, VendorAnswerWriter, answer_event, answer_thoughts, arguments_text
from lyra.models.stream import CUT_BY_BUDGET, Completion
from lyra.models.usage import TokenUsage

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

    def whole(self, answer: Completion) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        thinking = "".join(str(part["thinking"]) for part in answer_thoughts(answer))
        if thinking:
            message["reasoning_content"] = thinking
        if answer.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": arguments_text(call)},
                }
                for call in answer.tool_calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.stop_reason]}
        return {**self._document("chat.completion"), "choices": [choice], "usage": _usage(answer.usage)}

    def _started(self) -> bytes:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def _text_piece(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def _thought(self, text: str, signature: str) -> bytes:
        return self._chunk({"reasoning_content": text}) if text else b""

    def _tool_started(self, index: int, call_id: str, name: str) -> bytes:
        begun = {"index": index, "id": call_id, "type": "function"}
        return self._chunk({"tool_calls": [{**begun, "function": {"name": name, "arguments": ""}}]})

    def _tool_piece(self, index: int, text: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})

    def _tool_ended(self) -> bytes:
        return b""

    def _finished(self, reason: str) -> bytes:
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
