"""Calls between hosts that Ray started: by Ray's actor handles, with gRPC where Ray cannot carry them.

Such a host has two ways in, and an address that names both: `ray:NAME@HOST:PORT`. NAME is its actor in a namespace of
the cluster's own, HOST:PORT its gRPC port. `RayCarrier` chooses by the address: other Ray hosts by their actors, hosts
that were started by hand over gRPC. A process that is not connected to Ray (such a host, a client, or
`lyra cluster status` while Ray is down) calls the gRPC port with `GrpcCarrier`, so one cluster has hosts of both kinds.

An actor that Ray calls dead, or does not find, is unreachable and nothing more: what that means for its shards is up to
their leases. A call that is given up may still be made when a frozen host wakes up; it finds the shards fenced.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Container
from typing import Any, Final

from lyra.cluster.peers import TLS, GrpcCarrier, PeerTls, read_answer
from lyra.core import codec
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, DeadlineExceeded, Unreachable

SCHEME: Final = "ray:"
_INLINE_BYTES_MAX: Final = 64 * 1024  # larger ones would go through Ray's object store, which takes longer than gRPC


def ray_address(name: str, grpc_address: str) -> str:
    return f"{SCHEME}{name}@{grpc_address.removeprefix(TLS)}"


def actor_name(address: str) -> str:
    """Return the name of a host's actor; "" where Ray did not start it."""
    return address.removeprefix(SCHEME).rpartition("@")[0] if address.startswith(SCHEME) else ""


def namespace_of(secret: Secret) -> str:
    """Return the namespace that the actors of one cluster have to themselves."""
    return f"lyra-{hashlib.sha256(b'namespace ' + secret.reveal().encode()).hexdigest()[:16]}"


def load_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("hosts on Ray need the ray extra", hint="pip install 'lyra-agents[ray]'") from error
    return ray


class RayCarrier:
    """See the module. The process has to be connected to Ray."""

    def __init__(self, secret: Secret, tls: PeerTls | None = None) -> None:
        self._ray = load_ray()
        self._grpc = GrpcCarrier(secret, tls)
        self._namespace = namespace_of(secret)
        self._actors: dict[str, Any] = {}  # by address
        self.carried = {"ray": 0, "grpc": 0}  # calls that were answered, by the way they went

    async def call(self, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        name = actor_name(address)
        request = codec.encode([method, data]) if name else b""
        actor = None
        if name and len(request) <= _INLINE_BYTES_MAX:
            actor = self._actors.get(address) or await self._find(address)
        if actor is None:
            answer = await self._grpc.call(address, method, data, timeout_s=timeout_s)
            self.carried["grpc"] += 1
            return answer
        try:
            told = await asyncio.wait_for(actor.answer.remote(request), timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(f"host {address} did not answer within {timeout_s:g} s") from None
        except self._ray.exceptions.RayError as lost:
            self._actors.pop(address, None)
            raise Unreachable(f"host {address} cannot be reached: {type(lost).__name__}") from None
        self.carried["ray"] += 1
        return read_answer(told)

    async def _find(self, address: str) -> Any:
        """Look a host's actor up; None where Ray knows none, or does not answer."""
        try:
            actor = await asyncio.to_thread(self._ray.get_actor, actor_name(address), namespace=self._namespace)
        except (ValueError, self._ray.exceptions.RayError):
            return None
        self._actors[address] = actor
        return actor

    def forget(self, alive: Container[str]) -> None:
        """Drop the channels and the actors of all hosts but those that are alive."""
        self._grpc.forget(alive)
        self._actors = {address: kept for address, kept in self._actors.items() if address in alive}

    async def close(self) -> None:
        self._actors.clear()
        await self._grpc.close()
