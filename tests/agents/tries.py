"""A model whose tries are written out one by one: text, pauses, what was counted, and where it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider, Request
from lyra.models.script import Script
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, TokenUsage, UsageSeen
from lyra.models.wire.faults import fault

BROKEN: Final = "<broken>"  # the connection goes


def counted(tokens_in: int, tokens_out: int) -> UsageSeen:
    return UsageSeen(TokenUsage(tokens_in, tokens_out))


class Tries(LLMProvider):
    """Each try is a list of texts, events, seconds to wait, and BROKEN; the last one is repeated."""

    name = "tries"

    def __init__(self, *tries: list[Any]) -> None:
        self._tries = tries
        self.tries = 0

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        steps = self._tries[min(self.tries, len(self._tries) - 1)]
        self.tries += 1
        yield Started()
        for step in steps:
            if step is BROKEN:
                raise fault("temporary", "the connection went")
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield TextDelta(step) if isinstance(step, str) else step
        yield Finished("tool_calls" if any(type(step).__name__ == "ToolEnd" for step in steps) else "end")

    def price(self, model: str) -> Price | None:
        return Script.from_data({"replies": ["-"], "price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}}).price
