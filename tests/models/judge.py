"""A driver for the judge: one call with Lyra's own rules of trying again, and the wires that are judged.

Providers never retry; the door does, by `Retry`. This is the same rule without a kernel around it, so that what an
outside judge sees is the wire client and the error classes, and nothing else.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from lyra.core.policies.retry import Backoff, Retry
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from lyra.models.stream import Completion

RETRY = Retry(max_attempts=3, backoff=Backoff(initial_s=0.1, jitter=0.2))


@dataclass(frozen=True)
class Judged:
    model: str
    provider: str
    format: str  # what the judge calls the format
    settings: dict[str, Any] = field(default_factory=dict)


JUDGED: dict[str, Judged] = {
    "anthropic": Judged("anthropic/claude-sonnet-4-5", "anthropic", "anthropic"),
    "openai-chat": Judged("openai/gpt-4o", "openai", "openai"),
    "openai-responses": Judged("openai/gpt-4o", "openai", "openai", {"api": "responses"}),
    "compatible": Judged("mistral/mistral-large", "mistral", "mistral"),
    "gemini": Judged("gemini/gemini-2.5-flash", "gemini", "gemini"),
}


async def ask(judged: Judged, base_url: str, request: Request, *, retry: Retry = RETRY, **settings: Any) -> Completion:
    """The answer, after as many tries as the rules allow."""
    given = {"api_key": "judge-key", "base_url": base_url, **judged.settings, **settings}
    attempt = 0
    async with LLMClient({judged.provider: given}, env={}) as client:
        while True:
            attempt += 1
            try:
                return await client.complete(judged.model, request)
            except Exception as error:
                if not retry.should_retry(error, attempt):
                    raise
                await asyncio.sleep(retry.delay(attempt, random.random, error))
