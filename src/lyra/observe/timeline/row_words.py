"""What messages, errors and ends say to a person, from the values that rows have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.observe.timeline.values import text_of_content

_ASK: Final = "lyra.ask"  # the key of a question to a conversation
_ORDERS: Final = {"lyra.revise": "the conversation is revised", "lyra.compact": "the conversation is summed up"}


def message_text(message: Any) -> Any:
    """What a message says: the content of a question to a conversation, an order about it in words, else itself."""
    if isinstance(message, Mapping) and _ASK in message:
        content = message.get("content")
        if isinstance(content, Mapping):
            return next((words for order, words in _ORDERS.items() if order in content), content)
        return text_of_content(content)
    return message


def last_answer(value: Any) -> str:
    messages = value.get("messages") if isinstance(value, Mapping) else None
    last = messages[-1] if isinstance(messages, list) and messages else {}
    return text_of_content(last.get("content")) if isinstance(last, Mapping) else ""


def error_text(error: Mapping[str, Any]) -> str:
    kind = error.get("type")
    return f"{kind}: {error.get('message', '')}" if kind else str(error.get("message") or error.get("code") or "")


def answer_of(row: Mapping[str, Any]) -> Any:
    """What a person answered: what was said, and not when."""
    response = row.get("response")
    if not isinstance(response, Mapping):
        return response
    return {name: value for name, value in response.items() if name != "received_at" and value not in (None, "")}


def ending_text(end: Mapping[str, Any]) -> Any:
    """How a child ended that was waited for: its result, or why it has none."""
    error = end["error"]
    if end["reason"] == "normal" and error is None:
        return end["result"]
    return f"ended {end['reason']}" + (f": {error_text(error)}" if isinstance(error, Mapping) else "")
