"""Anthropic's messages, written."""

from __future__ import annotations

from typing import Any, Final

from lyra.models.answers.writer import AnswerHead, VendorAnswerWriter, answer_event, answer_thoughts
from lyra.models.stream import CUT_BY_BUDGET, Completion
from lyra.models.usage import TokenUsage

_STOPS: Final[dict[str, str]] = {
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

    def whole(self, answer: Completion) -> dict[str, Any]:
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
        return {**self._document(answer.usage), "content": content, "stop_reason": _STOPS[answer.stop_reason]}

    def _started(self) -> bytes:
        return _event("message_start", message={**self._document(self._usage), "content": [], "stop_reason": None})

    def _text_piece(self, text: str) -> bytes:
        return self._block("text", {"text": ""}) + self._delta(type="text_delta", text=text)

    def _thought(self, text: str, signature: str) -> bytes:
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

    def _finished(self, reason: str) -> bytes:
        delta = {"stop_reason": _STOPS[reason], "stop_sequence": None}
        told = _event("message_delta", delta=delta, usage=_usage(self._usage))
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
            "usage": _usage(usage),
        }


def _usage(usage: TokenUsage) -> dict[str, Any]:
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
