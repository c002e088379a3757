"""The client of a Lyra server, and the worker that runs agents and services for one.

Start with `remote`: `lyra.connect("host:port")` gives a `RemoteKernel` with the kernel's methods, of which it
has the table. `wire` writes and reads the messages by their descriptors, `connection` has the channel, the token and
the retries, and turns the end of a call into the LyraError it was. `worker` claims work and runs it. Nothing is
imported before its first use, and grpc when a connection is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lyra.server.client.remote import RemoteKernel, connect
    from lyra.server.client.worker import CurrentWork, Worker, current_work

__all__ = ["CurrentWork", "RemoteKernel", "Worker", "connect", "current_work"]

_HOMES: Final[dict[str, str]] = {
    "CurrentWork": "worker",
    "RemoteKernel": "remote",
    "Worker": "worker",
    "connect": "remote",
    "current_work": "worker",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
