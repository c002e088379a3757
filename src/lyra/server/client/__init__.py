"""The client of a Lyra server, and the worker that runs agents and services for one.

Start with `remote`: `lyra.connect("host:port")` gives a `RemoteKernel` with the kernel's methods. `calls` is the table
of those methods, `wire` writes and reads the messages by their descriptors, `connection` has the channel, the token and
the retries, `failures` turns the end of a call into the LyraError it was. `worker` claims work, and `local_work` runs
it. grpc is imported when a connection is opened.
"""

from lyra.server.client.remote import RemoteKernel, connect
from lyra.server.client.worker import CurrentWork, Worker, current_work

__all__ = ["CurrentWork", "RemoteKernel", "Worker", "connect", "current_work"]
