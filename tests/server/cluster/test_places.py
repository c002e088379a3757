"""Which shard a request belongs to, without a cluster: the tables are total, and each rule reads what it should."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lyra.cluster.directory import HostRow, ShardRow, View
from lyra.cluster.placement import spread
from lyra.errors import ConfigError, NoSuchProcess
from lyra.kernel.remote.part import home_of
from lyra.server.cluster.grpc_front import PLACES as RPCS
from lyra.server.cluster.grpc_front import WORKERS, add_message
from lyra.server.cluster.merge import MERGES
from lyra.server.cluster.places import PLACES, Asked, Destination, Shards, find_place, name_processes
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.face import SERVICES, methods_of
from lyra.server.owners import make_owned_pid
from lyra.server.site import site

NAMES = ("s1", "s2", "s3", "s4")
NEW = ("s3", "s1", "s2", "s4")


def asked(name: str, /, body: Any = None, query: Any = (), headers: Any = None, **values: str) -> Asked:
    raw = b"" if body is None else json.dumps(body).encode()
    return Asked(name, values, list(query), headers or {}, raw, Shards(NAMES, lambda: NEW))


def one(name: str) -> Destination:
    return Destination("one", (name,))


def first(name: str) -> Destination:
    return Destination("first", (name, *(shard for shard in NAMES if shard != name)))


def test_every_endpoint_and_every_rpc_has_a_place() -> None:
    """An endpoint that stands in no table would go to any shard, and one that is asked of all needs a merge."""
    table = {endpoint.name: endpoint for gateway in (True, False) for endpoint in site(gateway=gateway)}
    documented = {name for name, endpoint in table.items() if endpoint.is_documented or name == "assets.get"}
    assert documented <= set(PLACES) <= set(table)
    for name in documented:
        place = find_place(asked(name, {}, **dict.fromkeys(table[name].parameters, "s2/x")))
        if place.how == "all" and name != "events.follow":
            assert name in MERGES, name
    services = set(SERVICES) - {WORKERS}
    assert set(RPCS) == {method.name for service in services for method, _ in methods_of(service)}
    for service in services:
        for method, _ in methods_of(service):
            field = RPCS[method.name]
            assert field[0] == "(" or field in method.request.DESCRIPTOR.fields_by_name, method.name


def test_an_address_without_a_pid_names_no_process() -> None:
    """With an empty pid the path of a process would be that of the list of its shard."""
    for request in (asked("processes.get", pid="s2/"), asked("processes.list", query=[("pid", "s2/")])):
        with pytest.raises(NoSuchProcess, match="names no process"):
            find_place(request)


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        (asked("agents.chat", {"message": "hi"}), Destination("new", NEW)),
        (asked("agents.chat", {"message": "hi", "session_id": "mine"}), one(home_of("mine", NAMES))),
        (asked("agents.resume", headers={"last-event-id": "talk:x.12"}), first(home_of("talk", NAMES))),
        (asked("agents.resume", query=[("session_id", "talk")]), first(home_of("talk", NAMES))),
        (asked("runs.get", run_id="r1"), first(home_of("r1", NAMES))),
        (asked("processes.get", pid="s2/p17"), one("s2")),
        (asked("processes.get", pid=make_owned_pid("chat", "ada", "talk")), first(home_of("talk", NAMES))),
        (asked("services.dispatch", {"pid": "s4/p1"}, name="echo"), one("s4")),
        (asked("services.dispatch", {}, name="echo"), Destination("new", NEW)),
        (asked("history.read", query=[("pid", "s2/p17")]), Destination("all", ("s2",))),
        (asked("traces.get", trace_id="t"), Destination("first", NAMES)),
        (asked("agui.run", {"threadId": "t"}), one(home_of("t", NAMES))),
        (asked("a2a.send", {"message": {"messageId": "m"}}), one(home_of("m", NAMES))),
        (asked("a2a.send", {"message": {"messageId": "m", "contextId": "c"}}), one(home_of("c", NAMES))),
        (asked("a2a.send", {"message": {"taskId": "t", "contextId": "c"}}), first(home_of("t", NAMES))),
        (asked("a2a.request", {"method": "tasks/get", "params": {"id": "t"}}), first(home_of("t", NAMES))),
        (
            asked("a2a.request", {"method": "GetPushConfig", "params": {"id": "p", "taskId": "t"}}),
            first(home_of("t", NAMES)),
        ),
        (asked("a2a.request", {"method": "ListTasks", "params": {}}), Destination("all", NAMES)),
        (asked("a2a.task", task="t:cancel"), first(home_of("t", NAMES))),
        (asked("mcp.ask", {"method": "tools/list"}), one("s1")),
        (asked("mcp.ask", {"method": "tools/call", "params": {"arguments": {}}}), Destination("new", NEW)),
    ],
    ids=lambda value: value.name if isinstance(value, Asked) else "",
)
def test_where_a_request_goes(request_: Asked, place: Destination) -> None:
    """By its id, by the address of its process, by what the client chose; else where new work goes."""
    assert find_place(request_) == place


def test_addresses_become_pids_on_the_way_and_addresses_again_in_answers() -> None:
    """The site of a shard knows no addresses."""
    request = asked("runs.diff", pid="s2/p1", other="s2/p9")
    assert find_place(request) == one("s2")
    assert request.values == {"pid": "p1", "other": "p9"}
    with pytest.raises(ConfigError, match="on one shard"):
        find_place(asked("runs.diff", pid="s2/p1", other="s3/p9"))
    with pytest.raises(NoSuchProcess):
        find_place(asked("processes.get", pid="s9/p1"))
    for name in ("processes.get", "processes.terminate", "runs.fork"):
        with pytest.raises(NoSuchProcess, match="each shard"):
            find_place(asked(name, pid="p1"))
    request = asked("hooks.add", {"pid": "s2/p1", "agent": ""})
    find_place(request)
    assert json.loads(request.body) == {"pid": "p1", "agent": ""}
    view = {"pid": "p1", "parent_pid": "", "child_pids": ["p2"], "children": [{"pid": "p2"}], "data": {"pid": "p3"}}
    assert name_processes("processes.tree", "s2", view) == {
        "pid": "s2/p1",
        "parent_pid": "",
        "child_pids": ["s2/p2"],
        "children": [{"pid": "s2/p2"}],
        "data": {"pid": "p3"},
    }


def test_new_work_is_spread_by_load_and_stays_at_home_among_equals() -> None:
    """What was placed since the loads were told counts; a host that drains gets nothing."""

    def host(name: str, state: str = "up", **load: float) -> HostRow:
        loads = {"processes": sum(load.values()), **{f"processes.{shard}": count for shard, count in load.items()}}
        return HostRow(name, "life", f"{name}:1", "1", 1, state=state, resources={"cpu": 1.0}, load=loads)

    hosts = {row.name: row for row in (host("a", s1=2, s2=1), host("b", s3=3, s4=0), host("c", "draining", s5=0))}
    owners = {"s1": "a", "s2": "a", "s3": "b", "s4": "b", "s5": "c"}
    shards = {name: ShardRow(name, number, owner) for number, (name, owner) in enumerate(owners.items())}
    view = View(0.0, 1.0, hosts, shards)
    assert spread(view, {}, "a") == ["s2", "s1", "s4", "s3"]
    assert spread(view, {}, "b") == ["s4", "s3", "s2", "s1"]
    assert spread(view, {"s2": 1}, "a") == ["s4", "s3", "s1", "s2"]
    assert spread(View(0.0, 1.0, hosts, shards, frozenset({"a"})), {}, "a") == ["s4", "s3"]


def test_figures_of_all_shards_are_added() -> None:
    """Numbers and counts are sums, rows are together, a service that several shards tell of is told once."""
    whole = pb.SystemStatus(uptime_seconds=5, total_processes=2, process_counts={"ready": 2})
    add_message(whole, pb.SystemStatus(uptime_seconds=9, total_processes=3, process_counts={"ready": 1, "zombie": 4}))
    assert (whole.uptime_seconds, whole.total_processes, dict(whole.process_counts)) == (
        9,
        5,
        {"ready": 3, "zombie": 4},
    )
    services = pb.ListServicesResponse(services=[pb.ServiceInfo(name="echo")])
    add_message(services, pb.ListServicesResponse(services=[pb.ServiceInfo(name="echo"), pb.ServiceInfo(name="b")]))
    assert [row.name for row in services.services] == ["echo", "b"]
