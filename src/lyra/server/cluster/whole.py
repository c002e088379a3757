"""The site of all shards: the pages at the root of a cluster, each gathered from what the shards tell.

It is the application of some shard of this host with another table: the same kernel, guard and logins, and in
`parts.whole` a `Whole`, which asks all shards for the person who looks. What belongs to one shard is answered with the
way to that shard's own pages, `/shards/SHARD/…`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import copy
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from lyra.cluster.directory import DRAINING, UP
from lyra.errors import ConfigError
from lyra.kernel.remote.part import home_of, split_address
from lyra.server.cluster.forwarding import SentRequest
from lyra.server.dashboard import cluster, layout, login
from lyra.server.dashboard.gathering import NOTHING, gather
from lyra.server.dashboard.html import tag
from lyra.server.dashboard.layout import link, page
from lyra.server.dashboard.login import problem_page
from lyra.server.dashboard.pages import (
    chat,
    costs,
    inbox,
    node,
    overview,
    pipeline,
    process,
    processes,
    run,
    runs,
    services,
    settings,
    traces,
)
from lyra.server.http.app import COUNTED, HttpApp
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.cluster.report import ClusterReport
    from lyra.server.cluster.reach import Reach

_ANSWER_S: Final = 2.0  # for a page: a shard that is open nowhere has its part of it missing meanwhile
# Of a request for a page, what those to the shards have: who asks, and which region.
_PASSED: Final = frozenset(
    {"authorization", "cookie", "host", "origin", "sec-fetch-site", "x-api-key", "x-forwarded-proto", "x-region"}
)


class Whole:
    """Asks all shards for the pages; see the module."""

    _reach: Reach

    def bind(self, reach: Reach) -> None:
        self._reach = reach

    @property
    def shards(self) -> list[str]:
        return list(self._reach.host.view.shards)

    async def ask(self, call: HttpCall, path: str, query: str = "") -> tuple[dict[str, bytes], list[str]]:
        """Return what each shard answers the person who asks for a page, and which shards do not answer."""
        request = _request(call, path, query)
        answers, missing = await self._reach.ask_all(dict.fromkeys(self.shards, request), wait_s=_ANSWER_S)
        told = {answer.shard: answer.body for answer in answers if answer.start.status == 200}
        if not told:
            raise HttpRefusal(
                answers[0].start.status, "no shard of the cluster answers", hint="the page Cluster says why"
            )
        return told, sorted({*missing, *(answer.shard for answer in answers if answer.shard not in told)})

    async def report(self) -> ClusterReport:
        return await self._reach.host.read_report()

    async def drain(self, host: str, *, undo: bool) -> None:
        if host not in self._reach.host.view.hosts:
            raise ConfigError(f"there is no host {host!r}", key="host")
        await self._reach.host.set_state(host, UP if undo else DRAINING)

    def shard_of(self, name: str) -> str:
        """Return the home of an id; of no id the shard for new work."""
        return home_of(name, self.shards) if name else self._reach.pick()[0]


def _request(call: HttpCall, path: str, query: str) -> SentRequest:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in call.headers.items() if name in _PASSED]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "scheme": call.base_url.partition(":")[0],
        "root_path": "",
        COUNTED: True,
        "headers": [*headers, (b"accept", b"application/json")],
        "client": (call.client, 0) if call.client else None,
    }
    return SentRequest(scope, b"")


def make_whole(app: HttpApp, whole: Whole) -> HttpApp:
    """Return the site of all shards beside that of one shard."""
    parts = copy(app.parts)
    parts.endpoints = WHOLE
    parts.whole = whole
    return HttpApp(parts, app.guard, problem_page)


# ---------------------------------------------------------------- what belongs to one shard


def _to_shard(find: Callable[[HttpCall], Awaitable[str] | str]) -> Callable[[HttpCall], Awaitable[RawAnswer]]:
    """Return the handler that sends a browser to the pages of the shard that `find` names."""

    async def lead(call: HttpCall) -> RawAnswer:
        named = find(call)
        shard = named if isinstance(named, str) else await named
        values = {name: split_address(value)[1] if name == "pid" else value for name, value in call.path.items()}
        first, *rest = [values.get(part[1:-1], part) for part in call.endpoint.path.strip("/").split("/")]
        location = link(call, f"shards/{shard}/{first}", *rest, query=msgspec.to_builtins(call.query))
        return RawAnswer(b"", "text/plain", 303, {"location": location})

    return lead


def _by_address(call: HttpCall) -> str:
    shard = split_address(call.path["pid"])[0]
    if not shard:
        raise HttpRefusal(404, f"{call.path['pid'][:100]!r} is no address", hint="write SHARD/PID, such as s2/p17")
    return shard


def _by_session(call: HttpCall) -> str:
    shard: str = call.parts.whole.shard_of(call.query.session_id)
    return shard


async def _by_trace(call: HttpCall) -> str:
    return await _find_shard(call, f"/api/traces/{quote(call.path['trace_id'], safe='')}")


async def _by_node(call: HttpCall) -> str:
    return await _find_shard(call, f"/api/nodes/{quote(call.path['node_id'], safe='')}")


async def _find_shard(call: HttpCall, path: str) -> str:
    """Return the first shard that answers at a path of the API."""
    answers: dict[str, bytes] = (await call.parts.whole.ask(call, path))[0]
    return next(iter(answers))


async def _each_shard(call: HttpCall) -> RawAnswer:
    """Show the way to a page that each shard has for itself."""
    await gather(call, NOTHING)
    name = call.endpoint.path.strip("/")
    rows = [tag("li", tag("a", shard, href=link(call, f"shards/{shard}/{name}"))) for shard in call.parts.whole.shards]
    return page(call, name.capitalize(), tag("ul", rows), lead=f"Each shard has {name} of its own.")


_LEADS: Final[dict[str, Callable[[HttpCall], Awaitable[str] | str]]] = {
    "pages.process": _by_address,
    "pages.run": _by_address,
    "pages.pipeline": _by_address,
    "pages.conversation": _by_session,
    "pages.trace": _by_trace,
    "pages.node": _by_node,
}
_EACH: Final = ("pages.pipelines", "pages.nodes")
# Forms of these pages go to the shard that has what they are about: the front finds it by its id.
_SAME: Final = (layout, login, overview, cluster, processes, inbox, costs, runs, chat, services, settings, traces)
_OF_ONE_SHARD: Final = ("acts.answer", "acts.chat", "acts.stop_answer", "acts.welcome")


def _make_table() -> tuple[Endpoint, ...]:
    table = []
    for module in (*_SAME, process, run, pipeline, node):
        for endpoint in module.ENDPOINTS:
            if endpoint.name in _LEADS:
                table.append(msgspec.structs.replace(endpoint, handler=_to_shard(_LEADS[endpoint.name])))
            elif endpoint.name in _EACH:
                table.append(msgspec.structs.replace(endpoint, handler=_each_shard))
            elif module in _SAME and endpoint.name not in _OF_ONE_SHARD:
                table.append(endpoint)
    return tuple(table)


WHOLE: Final = _make_table()
WHOLE_NAMES: Final = frozenset(endpoint.name for endpoint in WHOLE)
SOURCES: Final = tuple(
    source.endpoint()
    for source in (
        NOTHING,
        overview.SOURCE,
        processes.SOURCE,
        inbox.SOURCE,
        costs.SOURCE,
        runs.SOURCE,
        chat.SOURCE,
        services.SOURCE,
        traces.SOURCE,
    )
)
