"""The client of a Lyra server, and the worker that runs agents and services for one.

Start with `remote`: `lyra.connect("host:port")` gives a `RemoteKernel` with the kernel's methods, of which it has the
table. It has the channel, the token and the retries, and turns the end of a call into the LyraError it was. `wire`
writes and reads the messages by their descriptors. `worker` claims work and runs it. Nothing is imported before its
first use, and grpc when a connection is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra._imports import on_first_use

if TYPE_CHECKING:
    from lyra.server.client.remote import RemoteKernel, connect
    from lyra.server.client.worker import CurrentWork, Worker, current_work

__all__ = ["CurrentWork", "RemoteKernel", "Worker", "connect", "current_work"]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "worker": "CurrentWork Worker current_work",
            "remote": "RemoteKernel connect",
        },
    )
