"""Ties across shards: links, monitors, waits for an end, and the end of what was spawned abroad.

Both shards of a link have it in their state; an end is a post like any other, so a take-over neither loses nor
repeats one. A watch is one-way: `wait` and `monitor` post it with a `ref` of their own, and get one `ended` for it. The
death of a host is no end of its processes: they continue on another, and what was asked of them is answered then.

A link that is taken back counts as gone until the other shard has said so (`unlinked`): a link that this one posted
in the meantime does not make it anew on one side alone. A program may name a process abroad by its name; what is
remembered of it then goes by its pid on its own shard, and by that name on the other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec
from lyra.core.limits import MESSAGE_BYTES_MAX
from lyra.core.naming import SUPERVISE
from lyra.errors import Denied, LimitExceeded, LyraError, NoSuchProcess
from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row, error_to_row, text_of
from lyra.kernel.process.cut_short import process_lives_on
from lyra.kernel.process.links import LINKED, NO_PROCESS, Down, ExitSignal
from lyra.kernel.process.process import PLAIN_ENDS, Exit, Process
from lyra.kernel.programs.handle import make_stopped_error
from lyra.kernel.remote.messages import mark_of, take_mark
from lyra.kernel.remote.part import RemotePart, drop_item, read_tables, split_address

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

_WAIT: Final = "wait"  # the forms of a watch: an awaited `wait`, or the Down message of a `monitor`
_DOWN: Final = "down"
_TABLES: Final = ("awaited", "watchers", "links", "unlinking", "children", "gone")
_GONE_KEPT: Final = 200  # children abroad of one process that have ended, and are still known as its children


class Ties(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "ties"
    SENDS: ClassVar[frozenset[str]] = frozenset(
        {"watch", "unwatch", "ended", "link", "unlink", "unlinked", "exit", "stop"}
    )
    KEEPS: ClassVar[frozenset[str]] = SENDS - {"stop"}

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._parts = parts
        self._remote = remote
        # ref → the process here that it is for ("": a caller outside), the address that is watched, the form, and the
        # answer or None
        self.awaited: dict[str, Any] = {}
        self.watchers: dict[str, dict[str, Any]] = {}  # pid → shard/ref → form: told of its end
        self.links: dict[str, dict[str, Any]] = {}  # pid → address → the name by which that one knows this process
        self.unlinking: dict[str, dict[str, Any]] = {}  # pid → address → links taken back that are not confirmed
        self.children: dict[str, dict[str, Any]] = {}  # pid → addresses that it spawned and that live
        self.gone: dict[str, dict[str, Any]] = {}  # pid → those that have ended, the newest
        self._asking: dict[str, dict[str, None]] = {}  # pid → its refs in `awaited`
        self._waiting: dict[str, list[Any]] = {}  # ref → those that wait for this answer
        parts.core.after_abort.append(self._let_go)
        parts.core.subsystems.stop.append(self._stop)

    # ------------------------------------------------------------------ what it remembers

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:
        if what == "watch":
            self.awaited[data["ref"]] = [pid, f"{shard}/{data['pid']}", data["form"], None]
            self._asking.setdefault(pid, {})[data["ref"]] = None
        elif what == "unwatch":
            self._stop_awaiting(data["ref"])
        elif what == "link":
            self.links.setdefault(pid, {}).setdefault(f"{shard}/{data['to']}", "")
        elif what == "unlink":
            address = f"{shard}/{data['to']}"
            drop_item(self.links, pid, address)
            unlinking = self.unlinking.setdefault(pid, {})
            unlinking[address] = unlinking.get(address, 0) + 1
        elif what == "exit":
            drop_item(self.links, pid, f"{shard}/{data['to']}")
        elif what == "ended":
            drop_item(self.watchers, data["pid"], f"{shard}/{data['ref']}")

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:
        if what == "watch":
            self.watchers.setdefault(data["pid"], {})[f"{shard}/{data['ref']}"] = data["form"]
        elif what == "unwatch":
            drop_item(self.watchers, data["pid"], f"{shard}/{data['ref']}")
        elif what == "link":
            if data["pid"] and data["from"] not in self.unlinking.get(data["pid"], ()):
                name = data["to"] if data["to"] != data["pid"] else ""
                self.links.setdefault(data["pid"], {}).setdefault(data["from"], name)
        elif what == "unlink":
            drop_item(self.links, data["pid"], data["from"])
        elif what == "unlinked":
            left = self.unlinking.get(data["to"], {}).get(data["from"], 0) - 1
            if left > 0:
                self.unlinking[data["to"]][data["from"]] = left
            else:
                drop_item(self.unlinking, data["to"], data["from"])
        elif what == "exit":
            drop_item(self.links, data["to"], data["from"])
            drop_item(self.links, data["to"], data["pid"])
            self._bury_child(data["to"], data["pid"])
        elif what == "ended" and data["ref"] in self.awaited:
            kept = self.awaited[data["ref"]]
            self._bury_child(kept[0], kept[1])
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
            for table in (self.links, self.unlinking, self.watchers, self.children, self.gone):
                table.pop(pid, None)
            for ref in self._asking.pop(pid, {}):
                self.awaited.pop(ref, None)

    def _bury_child(self, pid: str, address: str) -> None:
        if address in self.children.get(pid, ()):
            drop_item(self.children, pid, address)
            gone = self.gone.setdefault(pid, {})
            gone[address] = None
            if len(gone) > _GONE_KEPT:
                del gone[next(iter(gone))]

    def _stop_awaiting(self, ref: str) -> None:
        kept = self.awaited.pop(ref, None)
        if kept is not None:
            drop_item(self._asking, kept[0], ref)

    def dump(self) -> Any:
        return {name: getattr(self, name) for name in _TABLES}

    def load(self, data: Any) -> None:
        for name, table in read_tables(data, _TABLES).items():
            setattr(self, name, table)
        self._asking = {}
        for ref, kept in self.awaited.items():
            self._asking.setdefault(kept[0], {})[ref] = None

    def on_restored(self) -> None:
        """Take back the watches of callers outside, who were there in an earlier life of the kernel."""
        for ref in list(self._asking.get("", ())):
            self._give_up(ref)

    # ------------------------------------------------------------------ waits

    async def wait(self, process: Process, key: rows.Key, address: str) -> Exit[Any]:
        """Return how a process abroad ended; waits across restarts of either shard. `forget_wait` is called when the
        answer has a row of its own."""
        ref = _ref_of_wait(process, key)
        try:
            answer = await self._await(process, ref, address)
        except BaseException:
            if process_lives_on(process):
                self._give_up(ref)
            raise
        take_mark(process, answer, "what came of", address)
        return _read_end(answer, address)

    def forget_wait(self, process: Process, key: rows.Key) -> None:
        """Forget the answer to a wait: a replay finds it in the journal from now on."""
        ref = _ref_of_wait(process, key)
        if ref in self.awaited:
            self._remote.note(self, {"ref": ref}, pid=process.pid)

    async def wait_outside(self, address: str) -> Exit[Any]:
        """Return how a process abroad ended, to a caller that is no program: it ends with this kernel."""
        ref = f"~{self._core.entropy.text(12)}"
        try:
            answer = await self._await(None, ref, address)
        finally:
            if not self._core.stopping and self._core.failure is None:
                self._give_up(ref)
        if "mark" in answer:
            self._core.taint.mark_here(f"what came of {address}")
        return _read_end(answer, address)

    async def _await(self, process: Process | None, ref: str, address: str) -> dict[str, Any]:
        shard, pid = split_address(address)
        if ref not in self.awaited:
            owner = "" if process is None else process.pid
            data = {"ref": ref, "pid": pid, "form": _WAIT, "by": self._remote.address_of(owner)}
            self._remote.post(shard, "watch", data, pid=owner)
        while self.awaited[ref][3] is None:
            waiting = self._waiting.setdefault(ref, [])
            if process is not None:
                await suspend(process, waiting)
            else:
                future: asyncio.Future[None] = self._core.loop.create_future()
                waiting.append(future)
                await future
        return await self._remote.get_blobs(self.awaited[ref][3])

    def _let_go(self, error: LyraError) -> None:
        """Tell callers outside that they will get no answer in this life of the kernel."""
        for waiting in self._waiting.values():
            for waker in waiting:
                if isinstance(waker, asyncio.Future):
                    resume(waker, error)

    def _stop(self) -> None:
        for ref in self._asking.get("", ()):
            for waker in self._waiting.get(ref, ()):
                resume(waker, make_stopped_error(self.awaited[ref][1]))

    def _give_up(self, ref: str) -> None:
        """End a watch whose answer no process waits for any more."""
        self._waiting.pop(ref, None)
        kept = self.awaited.get(ref)
        if kept is None:
            return
        if kept[3] is not None:
            self._remote.note(self, {"ref": ref}, pid=kept[0])
        else:
            shard, pid = split_address(kept[1])
            self._remote.post(shard, "unwatch", {"ref": ref, "pid": pid}, pid=kept[0], refusable=False)

    # ------------------------------------------------------------------ links, monitors, stops

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
            data = {"ref": f"{more['ref']}~{process.life}", "pid": pid, "form": _DOWN, "by": own}
            remote.post(shard, "watch", data, pid=process.pid)
        elif not self.is_child(process, address):
            raise Denied(f"process {process.pid} did not spawn {address!r}", pid=address)
        elif address in self.children.get(process.pid, ()):
            remote.post(shard, "stop", {"pid": pid, "by": own, "overdue": "killed", **more}, pid=process.pid)

    def is_child(self, process: Process, address: str) -> bool:
        """Return whether a process here spawned one abroad."""
        return address in self.children.get(process.pid, ()) or address in self.gone.get(process.pid, ())

    def demonitor(self, process: Process, ref: str) -> bool:
        """End a monitor of a process abroad; False where this is none."""
        own = f"{ref}~{process.life}"
        kept = self.awaited.get(own)
        if kept is None or kept[0] != process.pid:
            return False
        self._give_up(own)
        return True

    def watches(self, watcher: str, pid: str) -> bool:
        """Return whether the process at an address monitors or waits for one here."""
        shard, watching = split_address(watcher)
        begins = tuple(f"{shard}/{watching}{sign}" for sign in "#~")
        return any(ref.startswith(begins) for ref in self.watchers.get(pid, ()))

    def add_child(self, process: Process, address: str) -> None:
        self._remote.note(self, {"child": address}, pid=process.pid)

    def stop_children(self, process: Process, reason: str, grace_s: float | None, overdue: str | None) -> None:
        """Stop what a process that is killed with its tree has spawned abroad."""
        own = self._remote.address_of(process.pid)
        for address in self.children.get(process.pid, ()):
            self._post_stop(address, own, process, reason, grace_s, overdue)

    def kill(self, address: str, reason: str, by: Process | None) -> None:
        """Stop a process abroad and all that it spawned, for `kernel.kill`; `by` is the process that runs here."""
        self._post_stop(address, "", by, reason, 5.0, None)

    def _post_stop(
        self,
        address: str,
        own: str,
        process: Process | None,
        reason: str,
        grace_s: float | None,
        overdue: str | None,
    ) -> None:
        shard, pid = split_address(address)
        data = {"pid": pid, "by": own, "reason": reason, "grace_s": grace_s, "overdue": overdue}
        if process is not None and reason not in PLAIN_ENDS:
            data |= mark_of(process)
        self._remote.post(shard, "stop", data, pid="" if process is None else process.pid, refusable=False)

    # ------------------------------------------------------------------ the end of a process here

    def process_ended(self, process: Process, how: Exit[Any]) -> None:
        pid = process.pid
        tables = (self.links, self.watchers, self.children, self.gone, self.unlinking, self._asking)
        if not any(pid in table for table in tables):
            return
        remote = self._remote
        for address, name in list(self.links.get(pid, {}).items()):
            shard, other = split_address(address)
            data = {"to": other, "from": remote.address_of(name or pid), **self._describe_exit(process, how)}
            remote.post(shard, "exit", data, pid=pid, refusable=False)
        for key, form in list(self.watchers.get(pid, {}).items()):
            shard, ref = split_address(key)
            remote.post(shard, "ended", _describe_end(process, ref, form, how), pid=pid, refusable=False)
        for ref in list(self._asking.get(pid, ())):
            self._give_up(ref)
        for address in self.gone.get(pid, ()):
            self._core.taint.forget(address)
        remote.note(self, {}, pid=pid)

    def _describe_exit(self, process: Process, how: Exit[Any]) -> dict[str, Any]:
        """Return what a linked process abroad is told of an end."""
        text = text_of(how.error) if how.error is not None else ""
        data: dict[str, Any] = {
            "pid": self._remote.address_of(process.pid),
            "reason": how.reason,
            "text": text,
        }
        if how.reason == LINKED and how.error is not None:  # who died first, in a chain of links
            data["error"] = error_to_row(how.error)
        return data | (mark_of(process) if text or how.reason not in PLAIN_ENDS else {})

    # ------------------------------------------------------------------ what arrives

    def find_receiver(self, what: str, data: dict[str, Any]) -> str:
        return str(data["pid"]) if what == "watch" else str(data["to"]) if what == "link" else ""

    def before_take(self, sender: str, what: str, data: dict[str, Any]) -> Any:  # noqa: ARG002 (one signature)
        if what == "ended":
            return self.awaited.get(data["ref"])
        if what == "exit":
            data["to"] = self._find_linked(data["to"], data["from"])
            gone = self.gone.get(data["to"], {})
            if len(gone) >= _GONE_KEPT:
                self._core.taint.forget(next(iter(gone)))  # the one that is not known any more from here on
            links = self.links.get(data["to"], ())
            return data["from"] in links or data["pid"] in links
        if what in ("link", "unlink"):
            process = self._core.lookup(data["to"])
            data["pid"] = "" if process is None or _has_ended(process) else process.pid
        elif what in ("watch", "unwatch"):
            process = self._core.lookup(data["pid"])
            if process is not None:
                data["pid"] = process.pid
        return None

    def _find_linked(self, word: str, address: str) -> str:
        """Return the pid of the process that one abroad, which knows it by this word, is linked to."""
        if word in self.links:
            return word
        return next((pid for pid, links in self.links.items() if links.get(address) == word), word)

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:
        if what == "ended" and before is not None:
            self._take_end(data, before)
        elif what == "exit" and before:
            self._take_exit(data)
        elif what == "watch":
            self._take_watch(sender, data)
        elif what == "link" and not data["pid"]:
            self._refuse_link(sender, data)
        elif what == "unlink":
            back = {"to": split_address(data["from"])[1], "from": self._remote.address_of(data["to"])}
            self._remote.post(sender, "unlinked", back, refusable=False)
        elif what == "stop":
            self._take_stop(data)

    def _take_stop(self, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["pid"])
        if process is None or process.exit is not None:
            return
        if data["by"] and self._remote.acts.parents.get(process.pid) != data["by"]:
            return  # another process has that pid by now
        take_mark(process, data, "the reason of", data["by"])
        self._parts.lifetimes.stop_tree(process, data["reason"], grace_s=data["grace_s"], overdue=data["overdue"])

    def _take_watch(self, sender: str, data: dict[str, Any]) -> None:
        ref, pid, form, by = data["ref"], data["pid"], data["form"], data.get("by", "")
        refusal = self._remote.acts.find_refusal(pid, by)
        process = self._core.lookup(pid) if refusal is None else None
        if process is not None and not _has_ended(process):
            return
        answer: dict[str, Any]
        if process is not None and process.exit is not None and (form == _WAIT or self._is_parent(by, process)):
            answer = _describe_end(process, ref, form, process.exit)
        else:
            lost = NoSuchProcess(f"no process {pid!r} on shard {self._remote.shard}", pid=pid)
            answer = {"ref": ref, "pid": pid, "reason": NO_PROCESS, "text": ""}
            if form == _WAIT:
                answer |= {"lost": True, "error": refusal or error_to_row(lost)}
        answer["pid"] = pid
        self._remote.post(sender, "ended", answer, refusable=False)

    def _is_parent(self, address: str, process: Process) -> bool:
        """Return whether a process was spawned by the one at an address: that one could not tie itself to it before it
        began, and so is told how it ended, not that it is not there."""
        return bool(address) and self._remote.acts.parents.get(process.pid) == address

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
            ended = f"{split_address(address)[0]}/{data['pid']}"
            told = Down(data["ref"].rpartition("~")[0], ended, data["reason"], data["text"])
            self._parts.mailboxes.deliver(watcher, told)

    def _refuse_link(self, sender: str, data: dict[str, Any]) -> None:
        """Answer a link to a process that has ended, or is not there."""
        process = self._core.lookup(data["to"])
        own = self._remote.address_of(data["to"])
        told: dict[str, Any] = {"pid": own, "reason": NO_PROCESS, "text": ""}
        if process is not None and process.exit is not None and self._is_parent(data["from"], process):
            told = self._describe_exit(process, process.exit)
        back = {"to": split_address(data["from"])[1], "from": own, **told}
        self._remote.post(sender, "exit", back, pid=data["to"], refusable=False)

    def _take_exit(self, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["to"])
        if process is None or process.exit is not None:
            return
        is_supervised = process.program == SUPERVISE and data["pid"] in self.gone.get(process.pid, ())
        if not is_supervised:
            take_mark(process, data, "the end of", data["pid"])
        elif "mark" in data:  # a supervisor hands nothing of a child to the next one, and its words on only with this
            self._core.taint.mark(data["pid"], "its shard", own=data["mark"].get("own") is True)
        error = error_from_row(data["error"]) if data.get("error") is not None else None
        self._parts.links.signal(process, ExitSignal(data["pid"], data["reason"], data["text"]), error)


def _ref_of_wait(process: Process, key: rows.Key) -> str:
    return f"{process.pid}~{process.life}:{key}"


def _has_ended(process: Process) -> bool:
    """Return whether a process has ended for good: one that diverged continues with the right program."""
    return process.exit is not None and process.exit.reason != "divergence"


def _read_end(answer: dict[str, Any], address: str) -> Exit[Any]:
    error = error_from_row(answer["error"]) if answer.get("error") is not None else None
    if answer.get("lost"):
        raise error or NoSuchProcess(f"no process {address!r}", pid=address)
    return Exit(answer["reason"], codec.decode(answer["result"]) if "result" in answer else None, error)


def _describe_end(process: Process, ref: str, form: str, how: Exit[Any]) -> dict[str, Any]:
    """Return the post that says how a process ended: its result only where it is awaited."""
    text = text_of(how.error) if how.error is not None else ""
    data: dict[str, Any] = {"ref": ref, "pid": process.pid, "reason": how.reason, "text": text}
    if form != _DOWN or text or how.reason not in PLAIN_ENDS:
        data |= mark_of(process)
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
        data["result"] = result
    except LyraError as unfit:
        data["reason"], data["error"] = "error", error_to_row(unfit)
    return data
