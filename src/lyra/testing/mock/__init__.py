"""A server that speaks the wire formats of model providers and says what a Script says.

    async with MockServer("script.yaml") as server:
        …                                    # server.url, server.env

`server` owns the routes and the server's life, `http` the protocol below, `wire` what the formats have in common; one
module for each format: `anthropic`, `openai_chat`, `openai_responses`, `ollama`. `lyra mock serve` is the same from a
shell, for tests in any language.
"""

from __future__ import annotations

from lyra.testing.mock.server import MockServer

__all__ = ["MockServer"]
