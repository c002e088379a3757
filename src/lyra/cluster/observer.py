"""A look at a cluster from outside, for a command: the directory, and what the hosts that answer soon tell.

A `ClusterObserver` changes nothing and does not wait: a host that is held, or that is gone, has its error for an answer
after a part of a second. It imports no kernel, so that a command starts quickly; programs use `client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from lyra.cluster.directory import PostgresDirectory, View
from lyra.cluster.peers import GrpcCarrier, PeerTls
from lyra.core.limits import CLUSTER_ANSWER_S
from lyra.errors import LyraError

_CONNECT_S: Final = 2  # the least that libpq takes for `connect_timeout`


class ClusterObserver:
    """`async with ClusterObserver(url) as observer`; the constructor connects, and raises StoreError or ConfigError."""

    def __init__(self, url: str, tls: PeerTls | None = None) -> None:
        waits = "" if "connect_timeout=" in url else f"{'&' if '?' in url else '?'}connect_timeout={_CONNECT_S}"
        self.directory = PostgresDirectory(f"{url}{waits}", make=False)
        try:
            self.view: View = self.directory.view()
            self.silences_s = self.directory.read_silences()  # host → seconds since it renewed its row
            self._carrier = GrpcCarrier(self.directory.secret, tls)
        except BaseException:
            self.directory.close()
            raise

    async def __aenter__(self) -> ClusterObserver:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._carrier.close()
        self.directory.close()

    def refresh(self) -> View:
        """Read the directory again."""
        self.view = self.directory.view()
        self.silences_s = self.directory.read_silences()
        return self.view

    async def ask_hosts(
        self,
        method: str,
        data: dict[str, Any],
        *,
        timeout_s: float = CLUSTER_ANSWER_S,
        hosts: Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """Ask the living hosts at once; gives the answer of each by name, or the LyraError why there is none."""
        rows = [row for row in self.view.alive() if hosts is None or row.name in hosts]
        calls = [self._carrier.call(row.address, method, data, timeout_s=timeout_s) for row in rows]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, LyraError):
                raise answer
        return {row.name: answer for row, answer in zip(rows, answers, strict=True)}
