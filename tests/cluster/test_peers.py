"""The port at which a host answers the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.cluster.peers import GrpcListener
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError


async def _answer(_method: str, _data: Any) -> Any:
    raise AssertionError("nobody calls here")


def test_two_hosts_never_share_a_port() -> None:
    """The kernel would hand calls for one host to the other."""

    async def main() -> None:
        first = GrpcListener("127.0.0.1:0")
        await first.start(_answer, Secret("a"))
        second = GrpcListener(first.address)
        with pytest.raises(ConfigError, match="cannot listen"):
            await second.start(_answer, Secret("a"))
        await first.close()

    asyncio.run(main())
