"""A real `lyra serve` under load, killed with SIGKILL at random moments and started again on the same store.

Start with `kills`, which runs a campaign. `verify.served` is the server as a process, `outside` the file that it loads
and the log of what happened outside, `callers` reaches the server over gRPC and HTTP, and `scenes/` holds the clients:
each does its work over and over, keeps what was acknowledged to it, and compares that with the server after a restart.
"""

from __future__ import annotations

from verify.crash.server.kills import STORES, Result, run

__all__ = ["STORES", "Result", "run"]
