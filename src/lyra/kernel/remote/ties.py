"""Ties across shards: links, monitors, waits for an end, and the end of what was spawned abroad.

Both shards of a link have it in their state; an end is a post like any other, so a take-over neither loses nor
repeats one. A watch is one-way: `wait` and `monitor` post it with a `ref` of their own, and get one `ended` for it. The
death of a host is no end of its processes: they continue on another, and what was asked of them is answered then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec
from lyra.core.limits import MESSAGE_BYTES_MAX
from lyra.errors import Denied, LimitExceeded, LyraError, NoSuchProcess
from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row, error_to_row, text_of
from lyra.kernel.process.links import NO_PROCESS, Down, ExitSignal
from lyra.kernel.process.process import PLAIN_ENDS, Exit, Process
from lyra.kernel.remote.acts import mark_of, take_mark
from lyra.kernel.remote.posts import Part, Remote, drop_item, read_tables, split_address

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts

_WAIT: Final = "wait"  # the forms of a watch: an awaited `wait`, or the Down message of a `monitor`
_DOWN: Final = "down"
_TABLES: Final = ("awaited", "watchers", "links", "children")


class Ties(Part):
    """See the module."""

    NAME: ClassVar[str] = "ties"
    SENDS: ClassVar[frozenset[str]] = frozenset({"watch", "unwatch", "ended", "link", "unlink", "exit", "stop"})
    KEEPS: ClassVar[frozenset[str]] = SENDS - {"stop"}

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._parts = parts
        self._remote = remote
        # ref → the process here that it is for, the address that is watched, the form, and the answer or None
        self.awaited: dict[str, list[Any]] = {}
        self.watchers: dict[str, dict[str, list[str]]] = {}  # pid → ref → shard and form: told of its end
        self.links: dict[str, dict[str, None]] = {}  # pid → addresses
        self.children: dict[str, dict[str, None]] = {}  # pid → addresses that it spawned
        self._asking: dict[str, dict[str, None]] = {}  # pid → its refs in `awaited`
        self._waiting: dict[str, list[Any]] = {}  # ref → processes that wait for this answer

    # ------------------------------------------------------------------ what it remembers

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:
        if what == "watch":
            self.awaited[data["ref"]] = [pid, f"{shard}/{data['pid']}", data["form"], None]
            self._asking.setdefault(pid, {})[data["ref"]] = None
        elif what == "unwatch":
            self._stop_awaiting(data["ref"])
        elif what == "link":
            self.links.setdefault(pid, {})[f"{shard}/{data['to']}"] = None
        elif what in ("unlink", "exit"):
            drop_item(self.links, pid, f"{shard}/{data['to']}")
        elif what == "ended":
            drop_item(self.watchers, data["pid"], data["ref"])

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:
        if what == "watch":
            self.watchers.setdefault(data["pid"], {})[data["ref"]] = [shard, data["form"]]
        elif what == "unwatch":
            drop_item(self.watchers, data["pid"], data["ref"])
        elif what == "link":
            self.links.setdefault(data["to"], {})[data["from"]] = None
        elif what in ("unlink", "exit"):
            drop_item(self.links, data["to"], data["from"])
        elif what == "ended" and data["ref"] in self.awaited:
            kept = self.awaited[data["ref"]]
            drop_item(self.children, kept[0], kept[1])
            if kept[2] == _DOWN:
                self._stop_awaiting(data["ref"])
            else:
                kept[3] = data

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        """Remember a child, forget an answer that its process has got, or all about a process that has ended."""
        if "child" in data:
            self.children.setdefault(pid, {})[data["child"]] = None
        elif "ref" in data:
            self._stop_awaiting(data["ref"])
        else:
            self.links.pop(pid, None)
            self.watchers.pop(pid, None)
            self.children.pop(pid, None)
            for ref in self._asking.pop(pid, {}):
                self.awaited.pop(ref, None)

    def _stop_awaiting(self, ref: str) -> None:
        kept = self.awaited.pop(ref, None)
        if kept is not None:
            drop_item(self._asking, kept[0], ref)

    def dump(self) -> Any:
        return {name: getattr(self, name) for name in _TABLES}

    def load(self, data: Any) -> None:
        for name, table in read_tables(data, _TABLES).items():
            setattr(self, name, table)
        for ref, kept in self.awaited.items():
            self._asking.setdefault(kept[0], {})[ref] = None

    # ------------------------------------------------------------------ what programs ask

    async def wait(self, process: Process, key: rows.Key, address: str) -> Exit[Any]:
        """Return how a process abroad ended; waits across restarts of either shard."""
        ref = f"{process.pid}~{process.life}:{key}"
        shard, pid = split_address(address)
        if ref not in self.awaited:
            self._remote.post(shard, "watch", {"ref": ref, "pid": pid, "form": _WAIT}, pid=process.pid)
        while self.awaited[ref][3] is None:
            await suspend(process, self._waiting.setdefault(ref, []))
        answer = self.awaited[ref][3]
        self._remote.note(self, {"ref": ref}, pid=process.pid)
        take_mark(process, answer, "what came of", address)
        error = error_from_row(answer["error"]) if answer.get("error") is not None else None
        if answer.get("lost"):
            raise error or NoSuchProcess(f"no process {address!r}", pid=address)
        return Exit(answer["reason"], answer.get("result"), error)

    def tie(self, process: Process, what: str, address: str, more: dict[str, Any]) -> None:
        """Link, unlink, monitor or stop a process abroad."""
        remote = self._remote
        shard, pid = split_address(address)
        own = remote.address_of(process.pid)
        if what == "link":
            if address not in self.links.get(process.pid, ()):
                remote.post(shard, "link", {"to": pid, "from": own}, pid=process.pid)
        elif what == "unlink":
            if address in self.links.get(process.pid, ()):
                remote.post(shard, "unlink", {"to": pid, "from": own}, pid=process.pid)
        elif what == "monitor":
            remote.post(shard, "watch", {"ref": more["ref"], "pid": pid, "form": _DOWN}, pid=process.pid)
        elif address not in self.children.get(process.pid, ()):
            raise Denied(f"process {process.pid} did not spawn {address!r}", pid=address)
        else:
            remote.post(shard, "stop", {"pid": pid, **more}, pid=process.pid)

    def demonitor(self, process: Process, ref: str) -> bool:
        """End a monitor of a process abroad; False where this is none."""
        kept = self.awaited.get(ref)
        if kept is None or kept[0] != process.pid:
            return False
        shard, pid = split_address(kept[1])
        self._remote.post(shard, "unwatch", {"ref": ref, "pid": pid}, pid=process.pid)
        return True

    def add_child(self, process: Process, address: str) -> None:
        self._remote.note(self, {"child": address}, pid=process.pid)

    def stop_children(self, process: Process, reason: str) -> None:
        """Stop what a process that is killed with its tree has spawned abroad."""
        for address in self.children.get(process.pid, ()):
            shard, pid = split_address(address)
            self._remote.post(shard, "stop", {"pid": pid, "reason": reason}, pid=process.pid)

    # ------------------------------------------------------------------ the end of a process here

    def process_ended(self, process: Process, how: Exit[Any]) -> None:
        pid = process.pid
        if not (pid in self.links or pid in self.watchers or pid in self.children or pid in self._asking):
            return
        remote = self._remote
        text = text_of(how.error) if how.error is not None else ""
        mark = mark_of(process) if text or how.reason not in PLAIN_ENDS else {}
        for address in list(self.links.get(pid, ())):
            shard, other = split_address(address)
            data = {"to": other, "from": remote.address_of(pid), "reason": how.reason, "text": text, **mark}
            remote.post(shard, "exit", data, pid=pid)
        for ref, (shard, form) in list(self.watchers.get(pid, {}).items()):
            remote.post(shard, "ended", _describe_end(process, ref, form, how), pid=pid)
        remote.note(self, {}, pid=pid)

    # ------------------------------------------------------------------ what arrives

    def before_take(self, sender: str, what: str, data: dict[str, Any]) -> Any:  # noqa: ARG002 (one signature)
        if what == "ended":
            return self.awaited.get(data["ref"])
        return what == "exit" and data["from"] in self.links.get(data["to"], ())

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:
        if what == "ended" and before is not None:
            self._take_end(data, before)
        elif what == "exit" and before:
            self._take_exit(data)
        elif what == "watch":
            self._take_watch(sender, data)
        elif what == "link":
            self._take_link(sender, data)
        elif what == "stop":
            self._take_stop(data)

    def _take_stop(self, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["pid"])
        if process is not None and process.exit is None:
            grace_s = data.get("grace_s", 5.0)
            self._parts.lifetimes.stop_tree(process, data["reason"], grace_s=grace_s, overdue="killed")

    def _take_watch(self, sender: str, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["pid"])
        if process is not None and process.exit is None:
            return
        ref, pid, form = data["ref"], data["pid"], data["form"]
        if form == _DOWN:
            answer: dict[str, Any] = {"ref": ref, "pid": pid, "reason": NO_PROCESS, "text": ""}
        elif process is not None and process.exit is not None:
            answer = {**_describe_end(process, ref, form, process.exit), "pid": pid}
        else:
            lost = NoSuchProcess(f"no process {pid!r} on shard {self._remote.shard}", pid=pid)
            error = self._remote.acts.refused.get(pid) or error_to_row(lost)
            answer = {"ref": ref, "pid": pid, "reason": NO_PROCESS, "lost": True, "error": error}
        self._remote.post(sender, "ended", answer)

    def _take_end(self, data: dict[str, Any], awaited: list[Any]) -> None:
        """Take how a process abroad ended; `awaited` is the entry from before the post was remembered."""
        pid, address, form, _ = awaited
        if form == _WAIT:
            for waker in self._waiting.pop(data["ref"], ()):
                resume(waker)
            return
        watcher = self._core.lookup(pid)
        if watcher is not None and watcher.exit is None:
            take_mark(watcher, data, "the end of", address)
            self._parts.mailboxes.deliver(watcher, Down(data["ref"], address, data["reason"], data["text"]))

    def _take_link(self, sender: str, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["to"])
        if process is None or process.exit is not None:
            back, own = split_address(data["from"])[1], self._remote.address_of(data["to"])
            exit_data = {"to": back, "from": own, "reason": NO_PROCESS, "text": ""}
            self._remote.post(sender, "exit", exit_data, pid=data["to"])

    def _take_exit(self, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["to"])
        if process is not None and process.exit is None:
            take_mark(process, data, "the end of", data["from"])
            self._parts.links.signal(process, ExitSignal(data["from"], data["reason"], data["text"]))


def _describe_end(process: Process, ref: str, form: str, how: Exit[Any]) -> dict[str, Any]:
    """Return the post that says how a process ended: its result only where it is awaited."""
    text = text_of(how.error) if how.error is not None else ""
    data: dict[str, Any] = {"ref": ref, "pid": process.pid, "reason": how.reason, "text": text, **mark_of(process)}
    if form == _DOWN:
        return data
    data["error"] = error_to_row(how.error) if how.error is not None else None
    try:
        result = codec.encode(how.result)
        if len(result) > MESSAGE_BYTES_MAX:
            raise LimitExceeded(
                f"the result of {process.pid} has {len(result)} bytes; at most {MESSAGE_BYTES_MAX} travel",
                hint="write it where both shards can read it, and return where it is",
            )
        data["result"] = codec.decode(result)
    except LyraError as unfit:
        data["reason"], data["error"] = "error", error_to_row(unfit)
    return data
