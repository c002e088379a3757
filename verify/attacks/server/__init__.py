"""Attacks on `lyra serve` from outside: secrets that might show on one of its surfaces, and clients that mean harm.

Start with `exposed_secrets`, which plants secrets and searches everything that the server tells; `planted` is the file
that its server loads. `hostile_clients` sends what no honest client sends, over raw sockets and gRPC, and looks that
others are served meanwhile and that memory is bounded; `shapes` lists the requests,
`ground` has the server and the honest client. `gateway_secrets` does for keys of the gateway and its providers what
`exposed_secrets` does for the rest.
"""

from __future__ import annotations

from verify.attacks.server import exposed_secrets, gateway_secrets, hostile_clients

__all__ = ["exposed_secrets", "gateway_secrets", "hostile_clients"]
