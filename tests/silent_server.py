"""A server on the loopback that takes connections and says nothing: as an MCP server that hangs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

__all__ = ["silent_server"]


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Its address."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:  # the test is over
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/mcp"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    for connection in taken:
        connection.close()
