"""LLMProvider, which answers a Request. One method to write, `stream`; `complete` is its fold.

A Request is immutable plain data, in the one form from which every provider's wire format is made. It names the model
without its provider, holds no key and no address, and the journal's hash of a model call is made of it: two equal
Requests are the same question.

A provider is a Service to the kernel and knows nothing of it. It never retries, never limits and never counts money:
the door does, for every provider alike. Cancelling the consumer closes the connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool
from lyra.errors import ModelError
from lyra.models.stream import Completion, StreamEvent, complete

if TYPE_CHECKING:
    from lyra.models.pricing import Price


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
    web_search: bool = False  # the vendor's own search of the web, for a provider that has one (`searches_web`)


class LLMProvider(ABC):
    """`name` is the first half of `provider/model` (for one without, rights and traces have the name of its class);
    `images` is whether messages may hold images, `searches_web` whether a request may ask for the vendor's own search
    of the web: the answer then ends with the addresses of its sources."""

    name: str = ""
    images: bool = False
    searches_web: bool = False

    @abstractmethod
    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Return the events of the answer, as `stream` describes them; a ModelError where it goes wrong. Any other
        exception is sorted into one (`wire.faults.from_exception`)."""

    def secrets(self) -> tuple[str, ...]:
        """Return the keys, which must be redacted everywhere."""
        return ()

    async def complete(self, request: Request) -> Completion:
        """Return the whole answer."""
        try:
            return await complete(self.stream(request))
        except ModelError as error:  # also of an answer that has come and cannot be used
            error.fields.setdefault("provider", self.name)
            error.fields.setdefault("model", request.model)
            raise

    def load(self) -> None:  # noqa: B027 (those without a connection have nothing to load)
        """Import what the first request needs. May be called any number of times."""

    def price(self, model: str) -> Price | None:
        """Return the price of `model`, if the provider itself sets one; None leaves it to `pricing`."""
        return None

    def answers_in_order(self, model: str) -> bool:
        """Return whether an answer depends on earlier requests; then requests must not be sent ahead of their turn."""
        return False

    async def close(self) -> None:  # noqa: B027 (most have something to close, sim has not)
        """Give back connections; the provider may be used again."""


@asynccontextmanager
async def closing(events: AsyncIterator[StreamEvent]) -> AsyncIterator[AsyncIterator[StreamEvent]]:
    """Close the inner stream when the outer one is left early, so that its connection ends at once."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
