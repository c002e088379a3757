"""What is wrong with a cluster, in sentences, and a row for each host and shard.

`read_report` reads the directory and asks all living hosts at the same time how they do, for less than half a second;
`find_problems` is a pure function of what they told. A host that does not answer costs nothing but its answer: what it
has stands in the directory. A remark is worth a look and needs no act, such as two versions beside each other.

A `ClusterObserver` looks at a cluster for a command. It changes nothing and does not wait: a host that is held, or that
is gone, has its error for an answer after a part of a second. It imports no kernel, so that a command starts quickly;
programs use `client`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from lyra.cluster.directory import DRAINING, HostRow, PostgresDirectory, ShardRow, View
from lyra.cluster.peers import GrpcCarrier, PeerTls
from lyra.core.limits import CLUSTER_ANSWER_S, CLUSTER_GONE_S, CLUSTER_POSTS_LATE_S
from lyra.errors import LyraError

Silences = Mapping[str, float]  # host → seconds since it renewed its row
Answers = Mapping[str, Any]  # of hosts by name: what `calls` answers to "status", or the LyraError instead of it
_CONNECT_S: Final = 2  # the least that libpq takes for `connect_timeout`


class HostReport(msgspec.Struct, frozen=True):
    """A host. `state` is up, draining, late (it has not renewed in time, or does not answer) or gone."""

    name: str
    state: str
    address: str
    version: str
    shards: list[str]
    processes: int | None  # None where it did not answer
    resources: Mapping[str, float]
    renewed_s_ago: float


class ShardReport(msgspec.Struct, frozen=True):
    """A shard. `open` is None where its host did not answer."""

    name: str
    host: str
    open: bool | None
    processes: int | None
    waiting_posts: Mapping[str, int]
    note: str
    open_s: float | None = None  # for how long its host has had it open


class ClusterReport(msgspec.Struct, frozen=True):
    """See the module. `problems` and `remarks` are sentences."""

    problems: list[str]
    remarks: list[str]
    hosts: list[HostReport]
    shards: list[ShardReport]
    lease_s: float

    @property
    def is_well(self) -> bool:
        return not self.problems


async def read_report(observer: ClusterObserver) -> ClusterReport:
    answers = await observer.ask_hosts("status", {})
    return make_report(observer.view, observer.silences_s, answers)


def make_report(view: View, silences_s: Silences, answers: Answers) -> ClusterReport:
    problems, remarks = find_problems(view, silences_s, answers)
    hosts = [
        _describe_host(view, row, silences_s.get(name, 0.0), answers.get(name))
        for name, row in sorted(view.hosts.items())
    ]
    shards = [_describe_shard(row, answers.get(row.host)) for row in view.shards.values()]
    return ClusterReport(problems, remarks, hosts, shards, view.lease_s)


def find_problems(view: View, silences_s: Silences, answers: Answers) -> tuple[list[str], list[str]]:
    """Return what is wrong, and what is worth a remark, as sentences."""
    problems, remarks = [], []
    if not view.alive():
        problems.append("no host is running: start one with lyra cluster start")
    for name, row in sorted(view.hosts.items()):
        problems += _host_problems(view, row, silences_s.get(name, 0.0), answers.get(name))
        if row.state == DRAINING and view.is_alive(name):
            left = [shard.name for shard in view.shards.values() if shard.host == name]
            has = f"has {_list(left)} left" if left else "has no shard any more: it can be stopped"
            remarks.append(f"host {name} drains: it {has}")
    problems += _shard_problems(view, answers)
    problems += _post_problems(view, answers)
    versions = defaultdict(list)
    for row in view.alive():
        versions[row.version].append(row.name)
    if len(versions) > 1:
        told = "; ".join(f"{', '.join(names)} {version}" for version, names in sorted(versions.items()))
        remarks.append(f"versions differ: {told}")
    return problems, remarks


def is_late(view: View, host: str, silent_s: float) -> bool:
    """Return whether a host that counts as alive should have renewed its row before now."""
    return view.is_alive(host) and silent_s > view.lease_s / 2


def find_late_shards(view: View, silences_s: Silences, answers: Answers) -> dict[str, str]:
    """Return why a shard cannot be seen as it is at the moment, for each such shard."""
    newest = max((row.format for row in view.alive()), default=0)
    late: dict[str, str] = {}
    for name, shard in view.shards.items():
        if view.is_alive(shard.host) and isinstance(answers.get(shard.host), LyraError):
            silent_s = silences_s.get(shard.host, 0.0)
            since = f" and has not renewed for {_ago(silent_s)}" if is_late(view, shard.host, silent_s) else ""
            late[name] = f"its host {shard.host} does not answer{since}"
        elif reason := _find_closed_reason(view, shard, answers, newest):
            late[name] = f"it is open on no host: {reason}"
    return late


def _host_problems(view: View, row: HostRow, silent_s: float, answer: Any) -> Iterable[str]:
    if not view.is_alive(row.name):
        left = [shard.name for shard in view.shards.values() if shard.host == row.name]
        if left or silent_s < CLUSTER_GONE_S:
            taken = "its shards are with others" if not left else f"{_list(left)} waits for another host to take it"
            yield f"host {row.name} has not renewed for {_ago(silent_s)}: it counts as gone; {taken}"
    elif is_late(view, row.name, silent_s):
        until_s = view.lease_s - silent_s
        yield f"host {row.name} has not renewed for {_ago(silent_s)}; in {_ago(until_s)} the others take its shards"
    elif isinstance(answer, LyraError):
        yield f"host {row.name} renews its row and does not answer here: {answer.message}"
    if isinstance(answer, dict) and answer["problem"]:
        yield f"host {row.name}: {answer['problem']}"


def _shard_problems(view: View, answers: Answers) -> Iterable[str]:
    """Return a sentence for the shards that are closed for one reason together."""
    closed: dict[str, list[str]] = defaultdict(list)
    newest = max((row.format for row in view.alive()), default=0)
    for shard in view.shards.values():
        reason = _find_closed_reason(view, shard, answers, newest)
        if reason:
            closed[reason].append(shard.name)
    for reason, names in closed.items():
        word, are = ("shard", "is") if len(names) == 1 else ("shards", "are")
        yield f"{word} {_list(names)} {are} open on no host: {reason}"


def _find_closed_reason(view: View, shard: ShardRow, answers: Answers, newest: int) -> str:
    """Return why no host has a shard open; "" where one has, or may have."""
    answer = answers.get(shard.host)
    if shard.format > newest > 0:
        return f"its store has form {shard.format}, and the hosts open forms up to {newest}: start a newer version"
    if not shard.host:
        return shard.note or "no host has taken it yet"
    if shard.host not in view.hosts or not view.is_alive(shard.host):
        return f"host {shard.host} had it, and no other has taken it yet"
    if isinstance(answer, dict) and shard.name not in answer["shards"]:
        return shard.note or f"host {shard.host} is opening it"
    return ""


def _post_problems(view: View, answers: Answers) -> Iterable[str]:
    for answer in answers.values():
        for sender, facts in (answer["shards"] if isinstance(answer, dict) else {}).items():
            for to, count in facts["waiting_posts"].items():
                since = facts.get("waiting_since", {}).get(to, view.now)
                if view.now - since > CLUSTER_POSTS_LATE_S:
                    posts, wait = ("post", "waits") if count == 1 else ("posts", "wait")
                    yield f"{count} {posts} of shard {sender} {wait} for {to} since {_ago(view.now - since)}"


def _describe_host(view: View, row: HostRow, silent_s: float, answer: Any) -> HostReport:
    state = row.state
    if not view.is_alive(row.name):
        state = "gone"
    elif is_late(view, row.name, silent_s) or isinstance(answer, LyraError):
        state = "late"
    processes = None
    if isinstance(answer, dict):
        processes = sum(facts["processes"] for facts in answer["shards"].values())
    shards = [shard.name for shard in view.shards.values() if shard.host == row.name]
    return HostReport(row.name, state, row.address, row.version, shards, processes, row.resources, round(silent_s, 3))


def _describe_shard(row: ShardRow, answer: Any) -> ShardReport:
    facts = answer["shards"].get(row.name) if isinstance(answer, dict) else None
    is_open = None if isinstance(answer, LyraError) else facts is not None
    known = facts or {"processes": None, "waiting_posts": {}}
    return ShardReport(
        row.name, row.host, is_open, known["processes"], known["waiting_posts"], row.note, known.get("open_s")
    )


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _ago(seconds: float) -> str:
    """Return a length of time in words."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86_400:.0f} days"


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
