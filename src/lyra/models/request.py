"""A Request to a model, in the one form from which every provider's wire format is made.

Immutable plain data. It names the model without its provider, holds no key and no address, and is what the journal's
hash of a model call is made of: two equal Requests are the same question.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool


class Request(msgspec.Struct, frozen=True):
    """`tool_choice` is auto, none, any, or the name of one tool. None leaves a setting to the provider. A provider
    whose API has no `top_k`, `seed` or `repeat_penalty` leaves that one out."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    parallel_tools: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    top_k: int | None = None
    seed: int | None = None
    repeat_penalty: float | None = None
    output_schema: dict[str, Any] | None = None  # a JSON schema that the answer has to fit
    output_name: str = "answer"
    thinking_tokens: int | None = None  # how many tokens a thinking model may think before it answers
    cache: bool = True  # mark what stays the same from turn to turn for the provider's prompt cache
    idempotency_key: str = ""
