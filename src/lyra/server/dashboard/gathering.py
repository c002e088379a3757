"""What a page shows, read from the one kernel of a server, or gathered from all shards of a cluster.

A page that may be of a whole cluster has a `PageSource`: what it reads from one kernel, and how what several shards
read becomes one. `gather` gives that to the page's handler. In a server of its own it is a call of `read`; where the
site is that of all shards (`parts.whole`), each shard is asked at its path `/data/NAME` with the credentials of the
person who looks, so that each shows what that person may see there. The figures of the header come along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from lyra.core.codec import to_plain
from lyra.server.dashboard.layout import FiguresNow, HeaderFigures, join_figures
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery

T = TypeVar("T")
Told = tuple[str, T]  # a shard, and what it read

_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode


class Gathered(NamedTuple):
    """What a page of a whole cluster knows besides its own data."""

    figures: FiguresNow
    missing: Sequence[str]  # shards that did not answer


class PageSource(Generic[T]):
    """See the module. `kind` is the type of what is read; `query` that of the page."""

    def __init__(
        self,
        name: str,
        kind: Any,
        read: Callable[[HttpCall], Awaitable[T]],
        join: Callable[[HttpCall, Sequence[Told[T]]], T],
        query: Any = RequestQuery,
    ) -> None:
        self.name = name
        self.kind = kind
        self.read = read
        self.join = join
        self.query = query

    @property
    def path(self) -> str:
        return f"/data/{self.name}"

    def endpoint(self) -> Endpoint:
        """Return the endpoint at which a shard tells what it reads."""
        return Endpoint(
            f"data.{self.name}", "GET", self.path, f"The {self.name} of one shard", self._tell, query=self.query
        )

    async def _tell(self, call: HttpCall) -> RawAnswer:
        figures = call.parts.get_shared(HeaderFigures)
        told = {
            "data": msgspec.Raw(_encode(await self.read(call))),
            "figures": figures.read(call.caller),
            "latencies": figures.latencies(call.caller),
        }
        return RawAnswer(_encode(told))


async def _read_nothing(_call: HttpCall) -> None:
    """Read nothing: the page needs no data, and has the figures of all shards in its header."""


NOTHING: Final = PageSource[None]("figures", None, _read_nothing, lambda _call, _told: None)


class _Answer(msgspec.Struct):
    data: msgspec.Raw
    figures: FiguresNow
    latencies: list[float]


async def gather(call: HttpCall, source: PageSource[T]) -> T:
    """Return what a page shows, and note the figures and the missing shards for its frame."""
    whole = call.parts.whole
    if whole is None:
        return await source.read(call)
    query = urlencode(
        {name: value for name, value in msgspec.to_builtins(call.query).items() if value not in ("", None)}
    )
    answers, missing = await whole.ask(call, source.path, query)
    told = [(shard, msgspec.json.decode(body, type=_Answer)) for shard, body in answers.items()]
    call.gathered = Gathered(join_figures([(answer.figures, answer.latencies) for _, answer in told]), missing)
    return source.join(call, [(shard, msgspec.json.decode(answer.data, type=source.kind)) for shard, answer in told])
