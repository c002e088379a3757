"""`lyra serve --gateway` killed with SIGKILL in the middle of calls, and a budget that many clients attack at once.

Start with `kills`, which runs a campaign and judges it after each restart. `bill` is the provider: it answers, fails
and breaks off as it is asked to, and writes down what it would bill. `ledger` is what the clients know of a key, and
`overrun` has hundreds of streams at once spend one small budget. `gateway_server` is the server as a process, and the
calls that its clients make.
"""

from __future__ import annotations

from verify.crash.gateway.kills import STORES, GatewayKills, run

__all__ = ["STORES", "GatewayKills", "run"]
