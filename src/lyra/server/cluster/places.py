"""Which shard a request belongs to: one table, by the names of the endpoints.

An id that a server makes has the shard that made it as its home (`Remote.draw_id`), and one that a client chooses lives
at its home, so the id alone says where. A process is named by its address, `shard/pid`. Work that begins without an id
is placed like a new process. What no name leads to is asked of one shard after the other, or of all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.ids import to_address
from lyra.errors import ConfigError, NoSuchProcess
from lyra.kernel.remote.part import home_of, split_address
from lyra.server.gateway.keys import find_key_home
from lyra.server.owners import OwnedPid
from lyra.server.token_limit import credential_of

_NUMBERED: Final = re.compile(r"p[0-9]+")


class Destination(NamedTuple):
    """Where a request goes: to the one shard; to the `first` of several that knows what is asked for; as `new` work to
    the first that is open; to `each` of them, with the answer of the first; or to `all`, whose answers are merged."""

    how: str
    shards: tuple[str, ...]


class Shards(NamedTuple):
    """What a rule knows of the cluster."""

    names: tuple[str, ...]  # of all, those that are open on this host first
    pick: Callable[[], tuple[str, ...]]  # the shards for new work, the best first
    find_user: Callable[[Mapping[str, str], str], str] = lambda _headers, _named: ""  # of the token in the headers

    def home(self, name: str) -> str:
        return home_of(name, self.names)


def check_unambiguous(pid: str, shards: Sequence[str]) -> None:
    """Refuse the number of a process without its shard: each shard has one of that number."""
    if _NUMBERED.fullmatch(pid) and len(shards) > 1:
        raise NoSuchProcess(f"{pid} is a process of each shard", hint="write SHARD/PID, such as s2/p17", pid=pid[:200])


class Asked:
    """A request as the rules see it. A rule that reads an address replaces it by the bare pid, in `values` or `query`;
    the front sends that on."""

    def __init__(
        self,
        name: str,
        values: Mapping[str, str],
        query: list[tuple[str, str]],
        headers: Mapping[str, str],
        body: bytes,
        shards: Shards,
    ) -> None:
        self.name = name
        self.values = dict(values)
        self.query = query
        self.headers = headers
        self.body = body
        self.shards = shards
        self.is_body_changed = False
        self.tells_processes = name.partition(".")[0] in _PROCESS_FIELDS

    @cached_property
    def data(self) -> dict[str, Any]:
        """The JSON object of the body; an empty one where it is none: the site tells what is wrong with it."""
        try:
            data = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def text(self, *path: str) -> str:
        """Return the text at a path of the body; "" where there is none."""
        value: Any = self.data
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value if isinstance(value, str) else ""

    def asks(self, name: str) -> str:
        """Return a value of the query."""
        return next((value for known, value in self.query if known == name), "")

    # ------------------------------------------------------------------ places

    def at_shard(self, shard: str) -> Destination:
        return Destination("one", (shard,))

    def at_home(self, name: str) -> Destination:
        """Return the home of an id, and the others behind it: a store that was moved into the cluster has ids of its
        own making."""
        home = self.shards.home(name)
        return Destination("first", (home, *(shard for shard in self.shards.names if shard != home)))

    def new(self) -> Destination:
        return Destination("new", self.shards.pick())

    def to_process(self, address: str) -> tuple[Destination, str]:
        """Return where a process is, and its pid. One without a shard is looked for, the likeliest first."""
        shard, pid = split_address(address)
        if shard:
            if shard not in self.shards.names:
                raise NoSuchProcess(f"there is no shard {shard[:80]!r}", pid=address[:200])
            if not pid:  # its path would be that of the list
                raise NoSuchProcess(f"{address[:80]!r} names no process", pid=address[:200])
            return self.at_shard(shard), pid
        check_unambiguous(pid, self.shards.names)
        owned = OwnedPid.read(pid)
        return self.at_home(pid if owned is None else owned.rest), pid


# The fields of answers that name processes, by the group of the endpoint, and the fields in which there are others.
_PROCESS_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "processes": ("pid", "parent_pid", "child_pids"),
    "sessions": ("pid",),
    "runs": ("pid", "of"),
    "pipelines": ("pid",),
    "interrupts": ("pid",),
    "traces": ("pid",),
}
_INSIDE: Final = ("children", "spans", "run", "steps", "processes")


def name_processes(name: str, shard: str, data: Any) -> Any:
    """Put addresses in place of the pids in the answer of one shard to an endpoint."""
    if isinstance(data, list):
        return [name_processes(name, shard, row) for row in data]
    if isinstance(data, dict):
        for field in _PROCESS_FIELDS[name.partition(".")[0]]:
            value = data.get(field)
            if isinstance(value, str):
                data[field] = to_address(shard, value)
            elif isinstance(value, list):
                data[field] = [to_address(shard, pid) for pid in value]
        for field in _INSIDE:
            if field in data:
                data[field] = name_processes(name, shard, data[field])
    return data


Rule = Callable[[Asked], Destination]


def _anywhere(asked: Asked) -> Destination:
    return asked.at_shard(asked.shards.names[0])


def _new(asked: Asked) -> Destination:
    return asked.new()


def _all(asked: Asked) -> Destination:
    """Return all shards, or the one of the process that the query names."""
    address = asked.asks("pid")
    if not address:
        return Destination("all", asked.shards.names)
    place, pid = asked.to_process(address)
    asked.query = [(name, pid if name == "pid" else value) for name, value in asked.query]
    return Destination("all", place.shards) if place.how == "one" else place


def _find(asked: Asked) -> Destination:
    return Destination("first", asked.shards.names)


def _to_each(asked: Asked) -> Destination:
    return Destination("each", asked.shards.names)


def _by_id(value: str) -> Rule:
    return lambda asked: asked.at_home(asked.values[value])


def _by_pid(asked: Asked) -> Destination:
    place, asked.values["pid"] = asked.to_process(asked.values["pid"])
    asked.query = [(name, split_address(value)[1] if name == "process" else value) for name, value in asked.query]
    other = asked.values.get("other", "") or asked.asks("other")
    shard, pid = split_address(other)
    if shard:
        if place != asked.at_shard(shard):
            raise ConfigError("both runs have to be on one shard", hint="their addresses begin with its name")
        if "other" in asked.values:
            asked.values["other"] = pid
        asked.query = [(name, pid if name == "other" else value) for name, value in asked.query]
    return place


def _by_session(asked: Asked) -> Destination:
    """Return the home of the session that a message goes on with; a new one is placed."""
    session_id = asked.text("session_id") or asked.asks("session_id")
    return asked.at_shard(asked.shards.home(session_id)) if session_id else asked.new()


def _by_event(asked: Asked) -> Destination:
    """Return where a stream is read on: the id of its last event begins with that of its session."""
    name = asked.headers.get("last-event-id", "").rpartition(".")[0]
    session_id = asked.asks("session_id") or name.partition(":")[0]
    return asked.at_home(session_id) if session_id else _anywhere(asked)


def _by_subject(asked: Asked) -> Destination:
    """Return the shard of the process that the body names; without one the work is new."""
    address = asked.text("pid")
    if not address:
        return asked.new()
    place, pid = asked.to_process(address)
    asked.body, asked.is_body_changed = msgspec.json.encode({**asked.data, "pid": pid}), True
    return place


def _by_thread(asked: Asked) -> Destination:
    thread_id = asked.text("threadId") or asked.text("thread_id")
    return asked.at_shard(asked.shards.home(thread_id)) if thread_id else asked.new()


def _by_message(asked: Asked, *before: str) -> Destination:
    """Return where a message of A2A goes: to its task, to its context, else where the same message would go again."""
    for name in ("taskId", "contextId", "messageId"):
        named = asked.text(*before, "message", name)
        if named:
            return asked.at_home(named) if name == "taskId" else asked.at_shard(asked.shards.home(named))
    return asked.new()


def _by_rpc(asked: Asked) -> Destination:
    """Return where a request of A2A's JSON-RPC goes."""
    if asked.text("method") in ("ListTasks",):
        return Destination("all", asked.shards.names)
    task_id = asked.text("params", "taskId") or asked.text("params", "id")
    return asked.at_home(task_id) if task_id else _by_message(asked, "params")


def _by_key(asked: Asked) -> Destination:
    """Return where the key is that a call of the gateway comes with: its budget and its limits are there alone."""
    user_id = asked.shards.find_user(asked.headers, asked.asks("user_id"))
    return asked.at_shard(find_key_home(credential_of(asked.headers), user_id, asked.shards.home))


def _by_key_name(asked: Asked) -> Destination:
    return asked.at_shard(asked.shards.home(asked.text("name")))


def _by_task(asked: Asked) -> Destination:
    return asked.at_home(asked.values["task"].partition(":")[0])


def _by_tool(asked: Asked) -> Destination:
    """Return where a request of MCP goes: a call of a tool to its session, or where new ones begin."""
    if asked.text("method") != "tools/call":
        return _anywhere(asked)
    session_id = asked.text("params", "arguments", "session_id")
    return asked.at_shard(asked.shards.home(session_id)) if session_id else asked.new()


# Each endpoint of `site.site()`; those of the pages go to one shard.
PLACES: Final[dict[str, Rule]] = {
    "system.alive": _anywhere,
    "system.ready": _anywhere,
    "system.openapi": _anywhere,
    "system.status": _all,
    "system.metrics": _all,
    "processes.list": _all,
    "processes.get": _by_pid,
    "processes.delete": _by_pid,
    "processes.terminate": _by_pid,
    "processes.restart": _by_pid,
    "processes.tree": _by_pid,
    "processes.send": _by_pid,
    "processes.rows": _all,
    "agents.list": _anywhere,
    "agents.get": _anywhere,
    "agents.chat": _by_session,
    "agents.stream": _by_session,
    "agents.resume": _by_event,
    "sessions.list": _all,
    "sessions.get": _by_id("session_id"),
    "sessions.end": _by_id("session_id"),
    "sessions.cancel": _by_id("session_id"),
    "runs.start": _new,
    "runs.list": _all,
    "runs.get": _by_id("run_id"),
    "runs.events": _by_id("run_id"),
    "runs.result": _by_id("run_id"),
    "runs.timeline": _by_pid,
    "runs.at": _by_pid,
    "runs.fork": _by_pid,
    "runs.diff": _by_pid,
    "pipelines.start": _new,
    "pipelines.list": _all,
    "pipelines.get": _by_id("run_id"),
    "pipelines.end": _by_id("run_id"),
    "pipelines.events": _by_id("run_id"),
    "pipelines.result": _by_id("run_id"),
    "interrupts.list": _all,
    "interrupts.get": _by_id("interrupt_id"),
    "interrupts.answer": _by_id("interrupt_id"),
    "interrupts.cancel": _by_id("interrupt_id"),
    "traces.list": _all,
    "traces.get": _find,
    "costs.get": _all,
    "services.list": _all,
    "services.get": _find,
    "services.dispatch": _by_subject,
    "nodes.list": _all,
    "nodes.get": _find,
    "nodes.execute": _new,
    "nodes.promote": _to_each,
    "nodes.rollback": _to_each,
    "nodes.mode": _to_each,
    "history.read": _all,
    "events.follow": _all,
    "webhooks.add": _to_each,
    "webhooks.list": _all,
    "webhooks.remove": _to_each,
    "hooks.add": _by_subject,
    "hooks.list": _all,
    "hooks.remove": _by_id("hook_id"),
    "hooks.take": _by_id("hook_id"),
    "a2a.default_card": _anywhere,
    "a2a.card": _anywhere,
    "a2a.request": _by_rpc,
    "a2a.send": _by_message,
    "a2a.stream": _by_message,
    "a2a.list_tasks": _all,
    "a2a.task": _by_task,
    "a2a.change_task": _by_task,
    "a2a.push_configs": _by_task,
    "a2a.set_push_config": _by_task,
    "a2a.push_config": _by_task,
    "a2a.delete_push_config": _by_task,
    "a2a.extended_card": _anywhere,
    "agui.run": _by_thread,
    "agui.capabilities": _anywhere,
    "mcp.ask": _by_tool,
    "assets.get": _anywhere,
    "models.list": _by_key,
    "models.get": _by_key,
    "openai.chat": _new,
    "anthropic.messages": _new,
    "gateway.chat": _by_key,
    "gateway.responses": _by_key,
    "gateway.messages": _by_key,
    "gateway.count_tokens": _by_key,
    "gateway.embeddings": _by_key,
    "keys.create": _by_key_name,
    "keys.list": _all,
    "keys.show": _by_id("key_id"),
    "keys.revoke": _by_id("key_id"),
    "acts.answer": _by_id("interrupt_id"),
}
# Rules that read the body.
_READERS: Final = (_by_session, _by_subject, _by_thread, _by_message, _by_rpc, _by_tool, _by_key_name)
_PROCESS_PAGES: Final = ("pages.process", "pages.run", "pages.pipeline", "acts.stop_pipeline", "acts.fork")


def find_place(asked: Asked) -> Destination:
    """Return where a request goes."""
    rule = PLACES.get(asked.name)
    if rule is not None:
        return rule(asked)
    if asked.name in _PROCESS_PAGES or asked.name.startswith("acts.process_"):
        return _by_pid(asked)
    return _anywhere(asked)


def needs_body(name: str) -> bool:
    """Return whether the body says where a request goes."""
    return PLACES.get(name) in _READERS
