"""A host as a program: its directory, its port for the other hosts, and its kernels by the settings of `lyra.toml`.

    async with join(config, url, ShardHooks(setup)) as host:
        await stopped.wait()
        await host.leave()

`lyra cluster start` and `lyra serve --cluster` are this, and what they tell or listen on besides. `Host.leave` has the
other hosts take the shards; a block that ends without it leaves them free.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.host import Host, SetUp
from lyra.cluster.peers import GrpcCarrier, GrpcListener, PeerTls, refuse_stream
from lyra.errors import ConfigError, ProcessError
from lyra.kernel.kernel import Kernel

if TYPE_CHECKING:
    from lyra.cluster.directory import Directory
    from lyra.config import Config
    from lyra.kernel.seams import Seams


class ShardHooks:
    """What a host does with the kernel of a shard when it opens and before it closes. `setup` is that of the user; what
    serves requests besides overrides the methods."""

    def __init__(self, setup: SetUp | None = None) -> None:
        self._setup = setup

    def bind(self, host: Host, directory: Directory) -> None:
        """Learn which host this is; called before it joins."""

    async def open(self, kernel: Kernel) -> None:
        prepared = None if self._setup is None else self._setup(kernel)
        if prepared is not None:
            await prepared

    async def close(self, kernel: Kernel, drain_s: float) -> None:
        """End what uses the kernel; what is in flight gets so many seconds."""

    def stream(self, method: str, data: Any) -> AsyncGenerator[Any, None]:
        """Answer a call of another host in pieces."""
        return refuse_stream(method, data)


@asynccontextmanager
async def join(
    config: Config,
    url: str,
    hooks: ShardHooks,
    *,
    resources: Mapping[str, float] | None = None,
    shards: int | None = None,
    lease_s: float | None = None,
) -> AsyncGenerator[Host, None]:
    """Run a host of the cluster in a database. `shards` and `lease_s` are those of a new cluster."""
    tls = PeerTls.from_config(config)
    directory = await asyncio.to_thread(PostgresDirectory, url, shards=shards, lease_s=lease_s)
    listener = GrpcListener(config.cluster.listen, config.cluster.advertise, tls)
    hosts: list[Host] = []

    async def answer(method: str, data: Any) -> Any:
        if not hosts:
            raise ProcessError("this host is starting")
        return await hosts[0].answer(method, data)

    def make_kernel(_shard: str, target: Any, seams: Seams) -> Kernel:
        lease_s = directory.lease_s
        return Kernel.from_config(config, store=target, seams=seams, lease_s=lease_s, lease_wait_s=lease_s + 1.0)

    try:
        await listener.start(answer, directory.secret, hooks.stream)
        host = Host(
            directory,
            GrpcCarrier(directory.secret, tls),
            name=find_host_name(config),
            address=listener.address,
            setup=hooks.open,
            before_close=hooks.close,
            make_kernel=make_kernel,
            resources=resources,
            drain_s=config.cluster.drain_s,
        )
        hooks.bind(host, directory)
        await host.start()
        hosts.append(host)
        try:
            yield host
        finally:
            await host.close()
    finally:
        await listener.close()
        directory.close()


def find_host_name(config: Config) -> str:
    """Return the configured name of this machine's host, else one made of the machine's own name."""
    if config.cluster.name is not None:
        return config.cluster.name
    return re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower()).strip("-.")[:63] or "host"


def read_resources(text: str | None) -> dict[str, float]:
    """Return what a machine has besides, as a flag names it: gpu=1,mem=64."""
    resources: dict[str, float] = {}
    for pair in (text or "").split(",") if text else ():
        name, equals, amount = pair.strip().partition("=")
        try:
            number = float(amount)
        except ValueError:
            number = -1.0
        if not equals or not name or not 0 <= number < 1e12:
            raise ConfigError(f"{pair!r} is no resource", hint="write NAME=N, such as gpu=1,mem=64", key="--resources")
        resources[name] = number
    return resources
