"""A server that speaks the wire formats of model providers and says what a Script says.

    async with MockServer("script.yaml") as server:
        …                                    # server.url, server.env

`server` owns the routes, the protocol below them and the server's life, `wires` the formats. `lyra mock serve` is the
same from a shell, for tests in any language.
"""

from __future__ import annotations

from lyra.testing.mock.server import MockServer

__all__ = ["MockServer"]
