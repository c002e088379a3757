"""What is wrong with a cluster is said in sentences, from what the directory and the hosts tell."""

from __future__ import annotations

from typing import Any

from lyra.cluster.directory import DRAINING, HostRow, ShardRow, View
from lyra.cluster.report import find_problems, make_report
from lyra.errors import Unreachable

NOW = 1_000.0
LEASE_S = 3.0
SILENCES_S: dict[str, float] = {}  # of the hosts that were made last


def host(name: str, age_s: float = 0.2, **fields: Any) -> HostRow:
    given = {"version": "1.0", "format": 4, **fields}
    SILENCES_S[name] = age_s
    return HostRow(name, "life", f"{name}:1", **given)


def view(*hosts: HostRow, shards: dict[str, str], **fields: Any) -> View:
    rows = {
        name: ShardRow(name, number, owner, **fields.get(name, {}))
        for number, (name, owner) in enumerate(shards.items(), 1)
    }
    expired = frozenset(row.name for row in hosts if SILENCES_S[row.name] >= LEASE_S)
    return View(NOW, LEASE_S, {row.name: row for row in hosts}, rows, expired)


def answer(*shards: str, problem: str = "", posts: dict[str, Any] | None = None) -> dict[str, Any]:
    facts = {shard: {"processes": 2, "waiting_posts": {}, **(posts or {})} for shard in shards}
    return {"problem": problem, "shards": facts}


def test_a_sound_cluster_has_no_problem() -> None:
    seen = view(host("a"), host("b"), shards={"s1": "a", "s2": "b"})
    report = make_report(seen, SILENCES_S, {"a": answer("s1"), "b": answer("s2")})
    assert (report.problems, report.remarks, report.is_well) == ([], [], True)
    assert [(row.name, row.host, row.open) for row in report.shards] == [("s1", "a", True), ("s2", "b", True)]
    assert [(row.name, row.state, row.processes) for row in report.hosts] == [("a", "up", 2), ("b", "up", 2)]


def test_a_host_that_does_not_renew_is_late_and_then_gone() -> None:
    late = view(host("a", 2.5), host("b"), shards={"s1": "a", "s2": "b"})
    held = {"a": Unreachable("no answer"), "b": answer("s2")}
    assert find_problems(late, SILENCES_S, held)[0] == [
        "host a has not renewed for 2.5 s; in 0.5 s the others take its shards"
    ]
    assert [row.state for row in make_report(late, SILENCES_S, held).hosts] == ["late", "up"]
    assert make_report(late, SILENCES_S, held).shards[0].open is None
    gone = view(host("a", 4.0), host("b"), shards={"s1": "a", "s2": "b"})
    assert find_problems(gone, SILENCES_S, {"b": answer("s2")})[0] == [
        "host a has not renewed for 4.0 s: it counts as gone; s1 waits for another host to take it",
        "shard s1 is open on no host: host a had it, and no other has taken it yet",
    ]
    taken = view(host("a", 4.0), host("b"), shards={"s1": "b", "s2": "b"})
    told = find_problems(taken, SILENCES_S, {"b": answer("s1", "s2")})[0]
    assert told == ["host a has not renewed for 4.0 s: it counts as gone; its shards are with others"]
    long_gone = view(host("a", 7_200.0), host("b"), shards={"s1": "b", "s2": "b"})
    assert find_problems(long_gone, SILENCES_S, {"b": answer("s1", "s2")})[0] == []


def test_a_host_that_renews_and_does_not_answer_is_named() -> None:
    """It is on the other side of a network that is cut, or listens where nobody can reach it."""
    seen = view(host("a"), shards={"s1": "a"})
    told, _ = find_problems(seen, SILENCES_S, {"a": Unreachable("host a:1 cannot be reached: unavailable")})
    assert told == [
        "host a renews its row and does not answer here: host a:1 cannot be reached: unavailable",
    ]


def test_a_shard_that_is_open_nowhere_says_why() -> None:
    seen = view(
        host("a"),
        shards={"s1": "a", "s2": "", "s3": "a", "s4": "a", "s5": "a"},
        s1={"note": "it was signed with the key of another user"},
        s3={"format": 9},
        s5={"note": "it was signed with the key of another user"},
    )
    assert find_problems(seen, SILENCES_S, {"a": answer()})[0] == [
        "shards s1 and s5 are open on no host: it was signed with the key of another user",
        "shard s2 is open on no host: no host has taken it yet",
        "shard s3 is open on no host: its store has form 9, and the hosts open forms up to 4: start a newer version",
        "shard s4 is open on no host: host a is opening it",
    ]
    assert find_problems(view(shards={"s1": ""}), {}, {})[0][0].startswith("no host is running")


def test_posts_that_wait_and_a_host_in_trouble_are_told() -> None:
    seen = view(host("a"), shards={"s1": "a"})
    late = {"waiting_posts": {"s2": 12, "s3": 1}, "waiting_since": {"s2": NOW - 7, "s3": NOW - 0.5}}
    assert find_problems(seen, SILENCES_S, {"a": answer("s1", posts=late)})[0] == [
        "12 posts of shard s1 wait for s2 since 7.0 s"
    ]
    told = find_problems(seen, SILENCES_S, {"a": answer("s1", problem="the directory cannot be used")})[0]
    assert told == ["host a: the directory cannot be used"]


def test_draining_and_two_versions_are_remarks() -> None:
    seen = view(host("a", state=DRAINING), host("b", version="1.1"), shards={"s1": "a", "s2": "b"})
    problems, remarks = find_problems(seen, SILENCES_S, {"a": answer("s1"), "b": answer("s2")})
    assert problems == []
    assert remarks == ["host a drains: it has s1 left", "versions differ: a 1.0; b 1.1"]
    empty = view(host("a", state=DRAINING), host("b"), shards={"s2": "b"})
    assert find_problems(empty, SILENCES_S, {"a": answer(), "b": answer("s2")})[1] == [
        "host a drains: it has no shard any more: it can be stopped"
    ]
