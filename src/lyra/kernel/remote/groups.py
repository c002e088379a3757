"""Groups of several shards: one home shard for each, copies elsewhere, one post a shard for a broadcast.

    home        has the group (`shared.groups`), numbers its changes and tells them to the shards that read it
    elsewhere   a copy as of a version. A change is an `ask` to the home and is seen here at once; until the home has
                told what became of it, changes of the same value by others do not show here

Each shard knows all groups and which shards have members; the members and the board of a group are told only to shards
that have asked for anything of it. A shard alone decides which of its own processes are members. Posts keep the order
of a pair of shards, so every copy becomes what the home has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.limits import BLACKBOARD_KEYS_MAX, GROUPS_MAX
from lyra.errors import InvalidTransition, LimitExceeded, LyraError, NameTaken, NoSuchGroup, Overloaded, ProcessError
from lyra.kernel.base.acting import acting, require
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.kernel.process.links import form_of, read_signal
from lyra.kernel.programs.handle import Ack
from lyra.kernel.remote.messages import mark_of, take_mark
from lyra.kernel.remote.part import RemotePart, drop_item, read_tables, split_address

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

_BOARD: Final = "a blackboard"
_TABLES: Final = ("readers", "holders", "pending", "subscribed")


class SharedGroups(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "groups"
    SENDS: ClassVar[frozenset[str]] = frozenset({"group.ask", "group.tell", "group.member", "group.message"})
    KEEPS: ClassVar[frozenset[str]] = frozenset({"group.tell"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._groups = parts.groups
        self._mailboxes = parts.mailboxes
        self._remote = remote
        self.readers: dict[str, dict[str, Any]] = {}  # group at home here → shards that are told its changes
        self.holders: dict[str, dict[str, Any]] = {}  # group → shards with members, as its home told
        self.pending: dict[str, dict[str, int]] = {}  # group → key → writes of this shard that the home has not told
        self.subscribed: dict[str, dict[str, Any]] = {}  # group elsewhere → {"": True} once it was asked for
        self._answers: dict[str, asyncio.Future[Any]] = {}  # ref → what the home answers; of this life of the kernel
        self._refs = 0
        self._core.subsystems.stop.append(self._stop)
        self._core.after_abort.append(lambda _: self._stop())

    # ------------------------------------------------------------------ what it remembers

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if what == "group.ask":
            name = data["group"]
            if data.get("reason") != "deleted":
                self.subscribed.setdefault(name, {})[""] = True
            if data["do"] in ("set", "unset"):
                keys = self.pending.setdefault(name, {})
                keys[data["key"]] = keys.get(data["key"], 0) + 1
        elif what == "group.tell":
            if data["do"] == "copied":
                self.readers.setdefault(data["group"], {})[shard] = None
            elif data["do"] == "deleted":
                self.readers.pop(data["group"], None)

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        name, do = data["group"], data["do"]
        if do == "deleted":
            self.holders.pop(name, None)
            self.pending.pop(name, None)
            self.subscribed.pop(name, None)
        elif do == "held":
            if data["on"]:
                self.holders.setdefault(name, {})[data["holder"]] = None
            else:
                drop_item(self.holders, name, data["holder"])
        elif do in ("set", "unset") and data.get("by") == self._remote.shard:
            keys = self.pending.get(name, {})
            left = keys.get(data["key"], 1) - 1
            if left > 0:
                keys[data["key"]] = left
            else:
                drop_item(self.pending, name, data["key"])

    def dump(self) -> Any:
        return {name: getattr(self, name) for name in _TABLES}

    def load(self, data: Any) -> None:
        for name, table in read_tables(data, _TABLES).items():
            setattr(self, name, table)

    # ------------------------------------------------------------------ what this shard asks

    def _is_home(self, name: str) -> bool:
        return self._remote.home_of(name) == self._remote.shard

    def _ask(self, name: str, do: str, pid: str = "", **more: Any) -> int:
        data = {"group": name, "do": do, **more}
        home, refusable = self._remote.home_of(name), do not in ("left", "read")  # an end, or a wish that is made once
        return self._remote.post(home, "group.ask", data, pid=pid, refusable=refusable)

    def create(self, name: str, *, exist_ok: bool) -> Ack:
        if self._is_home(name):
            return Ack(self._core, self._create_here(name, self._remote.shard))
        ref, answer = self._await_answer()
        self._ask(name, "create", exist_ok=exist_ok, ref=ref)
        self._groups._fact("", "group.created", {"group": name, "copy": True})
        return Ack(self._core, answer)

    def delete(self, name: str) -> Ack:
        if self._is_home(name):
            return Ack(self._core, self._delete_here(name))
        ref, answer = self._await_answer()
        self._ask(name, "delete", ref=ref)
        return Ack(self._core, answer)

    def change(self, pid: str, kind: str, data: dict[str, Any]) -> Ack:
        """Make a change that a process of this shard made, or one that concerns a process of this shard."""
        name, do = data["group"], kind.removeprefix("group.")
        more = {key: value for key, value in data.items() if key != "group"}
        if pid:
            more["member"] = self._remote.address_of(pid)
        if self._is_home(name):
            return Ack(self._core, self._change_here(name, do, more, by=self._remote.shard))
        seq = self._ask(name, do, pid, **more)  # refused where too many wait: then nothing has changed here, either
        self._groups._fact(pid, kind, {**data, "copy": True})
        return Ack(self._core, seq)

    def subscribe(self, name: str) -> None:
        """Ask for the members and the board of a group, unless they are told here already."""
        core = self._core
        if self.subscribed.get(name) or self._is_home(name) or core.stopping or core.failure is not None:
            return
        self._ask(name, "read")

    def has_copy(self, name: str) -> bool:
        """Return whether the members and the board of a group are told to this shard."""
        return self._is_home(name) or bool(self.subscribed.get(name))

    async def refresh(self, name: str) -> None:
        if not self._is_home(name):
            ref, answer = self._await_answer()
            self._ask(name, "read", ref=ref)
            await answer

    async def compare(self, name: str, data: dict[str, Any], *, tainted: bool) -> bool:
        """Have the home write a value if the one there is as expected; returns whether it was, once that is durable."""
        if tainted:
            data["tainted"] = True
        if self._is_home(name):
            told = self._compare_here(name, data, by=self._remote.shard)
            assert self._core.journal is not None
            await self._core.journal.wait_until_durable(self._core.journal.seq)
        else:
            ref, answer = self._await_answer()
            self._ask(name, "compare", ref=ref, **data)
            told = await answer
        if told["tainted"]:
            self._core.taint.mark_here(_BOARD)
        return bool(told["matched"])

    def ask_member(self, what: str, name: str, address: str) -> None:
        """Have another shard put a process of its own in a group, or take it out."""
        shard, pid = split_address(address)
        self._remote.post(shard, "group.member", {"group": name, "do": what, "pid": pid})

    def broadcast(self, name: str, message: Any, left_out: Collection[str]) -> dict[str, LyraError | None]:
        """Post a message to each other shard that has members; gives the members abroad that are known here."""
        remote, process = self._remote, acting()
        data: dict[str, Any] = {
            "group": name,
            "form": form_of(message),
            "message": self._mailboxes.encode(message),
            "exclude": [word if remote.knows(word) else remote.address_of(word) for word in left_out],
        }
        if process is not None and process.core is self._core:
            data["from"] = remote.address_of(process.known_as)
            data.update(mark_of(process))
        members = self._groups.state.groups[name].members
        outcome: dict[str, LyraError | None] = {
            pid: None for pid in members if remote.knows(pid) and pid not in left_out
        }
        for pid in outcome:
            try:
                require("process.send", name, pid)
            except LyraError as refusal:
                outcome[pid] = refusal
                data["exclude"].append(pid)
        holders = self._count_members(name) if self._is_home(name) else self.holders.get(name, {})
        for shard in [shard for shard in holders if shard != remote.shard]:
            try:
                remote.post(shard, "group.message", data, pid="" if process is None else process.pid)
            except Overloaded as full:
                outcome.update({pid: full for pid in outcome if split_address(pid)[0] == shard})
        return outcome

    def _count_members(self, name: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for pid in self._groups.state.groups[name].members:
            shard = split_address(pid)[0] if self._remote.knows(pid) else self._remote.shard
            counts[shard] = counts.get(shard, 0) + 1
        return counts

    def _await_answer(self) -> tuple[str, Awaitable[Any]]:
        self._refs += 1
        journal = self._core.journal
        assert journal is not None
        # The epoch tells the lives of the kernel apart: an answer to the last one may still be on its way.
        ref = f"{journal.epoch}.{self._refs}"
        future = self._answers[ref] = self._core.loop.create_future()
        return ref, _Answer(future)

    def _stop(self) -> None:
        """Tell the callers that wait for a home's answer that this kernel hears none any more."""
        answers, self._answers = self._answers, {}
        for future in answers.values():
            if not future.done():
                closed = ProcessError("the kernel closed before the group's home shard answered")
                future.set_result({"error": error_to_row(closed)})

    # ------------------------------------------------------------------ at the home of a group

    def _tell(self, shard: str, name: str, do: str, **more: Any) -> None:
        self._remote.post(shard, "group.tell", {"group": name, "do": do, **more}, refusable=False)

    def _tell_all(self, name: str, do: str, **more: Any) -> None:
        for shard in sorted(self._remote.shards):
            if shard != self._remote.shard:
                self._tell(shard, name, do, **more)

    def _create_here(self, name: str, by: str) -> int:
        self._groups._fact("", "group.created", {"group": name, "v": 1})
        created_at = self._groups.state.groups[name].created_at
        self._tell_all(name, "created", at=created_at, v=1, by=by)
        return self._last_row()

    def _delete_here(self, name: str) -> int:
        self._groups._fact("", "group.deleted", {"group": name})
        self._tell_all(name, "deleted")
        return self._last_row()

    def _last_row(self) -> int:
        journal = self._core.journal
        return 0 if journal is None else journal.seq

    def _change_here(self, name: str, do: str, data: dict[str, Any], *, by: str) -> int:
        """Make a change at home, and tell it to the shards that read the group."""
        remote, kept = self._remote, self._groups.state.groups[name]
        member = data.get("member", "")
        pid = (remote.find_own(member) or member) if member else ""
        shard = split_address(member)[0]
        row = {key: value for key, value in data.items() if key not in ("member", "ref")}
        before = self._count_members(name).get(shard, 0) if member else 0
        idle = (
            (do == "joined" and pid in kept.members)
            or (do == "left" and pid not in kept.members)
            or (do == "unset" and data["key"] not in kept.board)
        )
        if not idle:
            self._groups._fact(pid, f"group.{do}", {**row, "group": name, "v": kept.version + 1})
        told = {**row, "member": member} if member else row
        for reader in self.readers.get(name, {}):
            if not idle or reader == by:
                self._tell(reader, name, do, **told, v=kept.version, by=by)
        after = before + (0 if idle else {"joined": 1, "left": -1}.get(do, 0)) if member else 0
        if (before == 0) is not (after == 0):
            self._tell_all(name, "held", holder=shard, on=after > 0)
        return self._last_row()

    def _compare_here(self, name: str, data: dict[str, Any], *, by: str) -> dict[str, Any]:
        kept = self._groups.state.groups[name]
        matched = kept.board.get(data["key"]) == data["expected"]
        tainted = bool(kept.untrusted.get(data["key"]))
        if matched:
            self._raise_if_full(name, data["key"])
            row: dict[str, Any] = {key: data[key] for key in ("key", "value", "tainted") if key in data}
            self._change_here(name, "set", row, by="" if by != self._remote.shard else by)
        return {"matched": matched, "tainted": tainted}

    def _raise_if_full(self, name: str, key: str) -> None:
        board = self._groups.state.groups[name].board
        if key not in board and len(board) >= BLACKBOARD_KEYS_MAX:
            raise LimitExceeded(
                f"the blackboard of {name!r} holds {BLACKBOARD_KEYS_MAX} values, the most there may be", group=name
            )

    def _take_ask(self, shard: str, data: dict[str, Any]) -> None:
        name, do, ref = data["group"], data["do"], data.get("ref")
        try:
            answer = self._settle(shard, name, do, data)
        except LyraError as refusal:
            answer = {"error": error_to_row(refusal)}
        if ref is not None:
            self._tell(shard, name, "answer", ref=ref, answer=answer)

    def _settle(self, shard: str, name: str, do: str, data: dict[str, Any]) -> dict[str, Any]:
        """Do what another shard asks for a group whose home is here."""
        groups = self._groups.state.groups
        was_there = name in groups
        if do == "create" and not was_there:
            if len(groups) >= GROUPS_MAX:
                self._tell(shard, name, "deleted")
                raise Overloaded(f"there are {GROUPS_MAX} groups, the most there may be", limit=GROUPS_MAX)
            self._create_here(name, shard)
        if name not in groups:
            self._tell(shard, name, "deleted")
            raise NoSuchGroup(f"no group {name!r}", hint="kernel.groups.create(name) makes one", group=name)
        if shard not in self.readers.get(name, {}):
            self._copy_to(shard, name)
        if do == "create":
            if was_there and not data["exist_ok"]:
                raise NameTaken(f"there is a group {name!r} already", group=name)
        elif do == "delete":
            if groups[name].members:
                count = len(groups[name].members)
                raise InvalidTransition(f"group {name!r} has {count} members", hint="let them leave first", group=name)
            self._delete_here(name)
        elif do == "compare":
            return self._compare_here(name, data, by=shard)
        elif do == "set":
            self._settle_write(shard, name, data)
        elif do != "read":
            self._change_here(name, do, {key: data[key] for key in data if key not in ("group", "do")}, by=shard)
        return {}

    def _settle_write(self, shard: str, name: str, data: dict[str, Any]) -> None:
        row: dict[str, Any] = {key: data[key] for key in ("key", "value", "tainted") if key in data}
        try:
            self._raise_if_full(name, data["key"])
        except LimitExceeded:  # the writer's copy had room: it takes the value back
            self._tell(shard, name, "unset", key=data["key"], by=shard, v=self._groups.state.groups[name].version)
            return
        self._change_here(name, "set", row, by=shard)

    def _copy_to(self, shard: str, name: str) -> None:
        """Tell a shard the whole of a group; from then on it is told each change."""
        kept = self._groups.state.groups[name]
        copied = codec.decode(codec.encode(msgspec.to_builtins(kept)))
        remote = self._remote
        copied["members"] = {
            pid if remote.knows(pid) else remote.address_of(pid): since for pid, since in kept.members.items()
        }
        self._tell(shard, name, "copied", kept=copied)
        for holder, count in self._count_members(name).items():
            if count:
                self._tell(shard, name, "held", holder=holder, on=True)

    # ------------------------------------------------------------------ what arrives

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002
        if what == "group.ask":
            self._take_ask(sender, data)
        elif what == "group.message":
            self._take_message(sender, data)
        elif what == "group.member":
            self._take_member(data)
        elif data["do"] == "answer":
            future = self._answers.pop(data["ref"], None)
            if future is not None and not future.done():
                future.set_result(data["answer"])
        else:
            self._take_change(data)

    def _take_change(self, data: dict[str, Any]) -> None:
        """Take a change of a group elsewhere into the copy here."""
        name, do = data["group"], data["do"]
        groups = self._groups.state.groups
        if do == "created":
            if name not in groups:
                row = {"group": name, "at": data["at"], "v": data["v"], "copy": True}
                self._groups._fact("", "group.created", row)
        elif do == "copied":
            self._take_copy(name, data["kept"])
        elif name not in groups:
            return
        elif do == "deleted":
            self._drop_copy(name)
        elif do in ("set", "unset"):
            if not self.pending.get(name, {}).get(data["key"]) and (do == "set" or data["key"] in groups[name].board):
                row = {key: data[key] for key in ("group", "key", "value", "tainted", "v") if key in data}
                self._groups._fact("", f"group.{do}", {**row, "copy": True})
        elif do in ("joined", "left"):
            member = data["member"]
            if self._remote.find_own(member) is None and (member in groups[name].members) is (do == "left"):
                row = {key: data[key] for key in ("group", "reason", "v") if key in data}
                self._groups._fact(member, f"group.{do}", {**row, "copy": True})

    def _take_copy(self, name: str, kept: dict[str, Any]) -> None:
        """Take the whole of a group: members of this shard, and values that it has just written, stay as they are."""
        remote, mine = self._remote, self._groups.state.groups.get(name)
        own = {} if mine is None else {pid: since for pid, since in mine.members.items() if not remote.knows(pid)}
        members = {}
        for address, since in kept["members"].items():
            pid = remote.find_own(address)
            if pid is None:
                members[address] = since
            elif pid in own:
                members[pid] = own[pid]
        kept["members"] = {**members, **own}
        for key in self.pending.get(name, {}):
            for part in ("board", "untrusted"):
                kept[part].pop(key, None)
                if mine is not None and key in getattr(mine, part):
                    kept[part][key] = getattr(mine, part)[key]
        if mine is None:
            self._groups._fact("", "group.created", {"group": name, "at": kept["created_at"], "copy": True})
        self._core.fact(self._groups.state, "", "group.copied", {"group": name, "kept": kept, "copy": True})

    def _drop_copy(self, name: str) -> None:
        """Forget a group that is gone; members that this shard put there meanwhile leave it."""
        remote = self._remote
        for pid in list(self._groups.state.groups[name].members):
            row = {"group": name, "reason": "deleted", "copy": True}
            self._groups._fact(pid, "group.left", row)
            if not remote.knows(pid):
                self._ask(name, "left", pid, member=remote.address_of(pid), reason="deleted")
        self._groups._fact("", "group.deleted", {"group": name, "copy": True})

    def _take_member(self, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["pid"])
        try:
            if process is None:
                return
            if data["do"] == "join":
                self._groups.join(data["group"], process.pid)
            else:
                self._groups.leave(data["group"], process.pid)
        except LyraError as refusal:
            self._core.publish(data["pid"], "message.dropped", {"count": 1, "reason": refusal.message})

    def _take_message(self, sender: str, data: dict[str, Any]) -> None:
        group = self._groups.state.groups.get(data["group"])
        if group is None:
            return
        remote, left_out = self._remote, set(data["exclude"])
        for pid in list(group.members):
            if remote.knows(pid) or remote.address_of(pid) in left_out:
                continue
            process = self._core.lookup(pid)
            if process is None:
                continue
            take_mark(process, data, "a message from", data.get("from", sender))
            try:
                self._mailboxes.send(process, read_signal(data["form"], data["message"]))
            except LyraError as refusal:
                self._core.publish(pid, "message.dropped", {"count": 1, "reason": refusal.message})


class _Answer:
    """What a home shard answers: awaiting it gives that, or raises its error. It may be left unawaited."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def __await__(self) -> Any:
        return self._wait().__await__()

    async def _wait(self) -> Any:
        answer = await asyncio.shield(self._future)
        if answer.get("error") is not None:
            raise error_from_row(answer["error"])
        return answer or 0
