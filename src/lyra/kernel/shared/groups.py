"""Process groups: processes that hear the same broadcasts and share a blackboard.

Owns the members and the blackboard of each group; both are durable. A group is made by
`create` and outlives its members; a process joins and leaves, and its end leaves every group it was in. `broadcast`
puts one message in every member's mailbox, by the rules of `kernel.send`. Blackboard values are plain data: what is
written and what is read are copies.

In a cluster each group has a home shard, and other shards have copies of it: `remote.groups` keeps them. What is read
here is the copy as of a version; members of other shards are named by their addresses.

A program reaches its groups inside an effect: `await ctx.do(vote, …)` with an async function that calls
`kernel.groups.bb_set(…)`; a replay then does not write again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import printable
from lyra.core.limits import BLACKBOARD_KEYS_MAX, GROUPS_MAX, MESSAGE_BYTES_MAX
from lyra.core.rights.scope import EVERYTHING
from lyra.errors import (
    ConfigError,
    InvalidTransition,
    LimitExceeded,
    LyraError,
    NameTaken,
    NoSuchGroup,
    NoSuchProcess,
    Overloaded,
)
from lyra.kernel.base.acting import as_registered, require
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.programs.context import require_send
from lyra.kernel.programs.handle import Ack, Handle, acknowledge

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.mailbox import Mailboxes
    from lyra.kernel.process.process import Process


Listener = Callable[[str, str], Any]
_BOARD: Final = "a blackboard"  # the origin named when its text marks a process


class Group(msgspec.Struct, frozen=True):
    """A group as it was when asked for."""

    name: str
    members: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    created_at: float = 0.0
    version: int = 0  # of the copy in this shard of a cluster; 0 elsewhere


class _Kept(msgspec.Struct):
    """The durable data of one group; members in the order they joined."""

    created_at: float
    members: dict[str, float] = {}  # pid → since when
    board: dict[str, Any] = {}
    untrusted: dict[str, bool] = {}  # keys of values that a process wrote which had read text from outside
    version: int = 0  # in a cluster: how many changes the home shard had made when this was so


class GroupState:
    """The durable state. Rows about a member carry its pid."""

    NAME: ClassVar[str] = "groups"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"group.created", "group.deleted", "group.joined", "group.left", "group.set", "group.unset", "group.copied"}
    )

    def __init__(self) -> None:
        self.groups: dict[str, _Kept] = {}
        self.of_pid: dict[str, dict[str, None]] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        name = data["group"]
        if kind == "group.created":
            self.groups[name] = _Kept(data.get("at", time))
        elif kind == "group.copied":
            self._forget_members(name)
            self._keep(name, msgspec.convert(data["kept"], _Kept))
        elif kind == "group.deleted":
            self._forget_members(name)
            del self.groups[name]
        elif kind == "group.joined":
            self.groups[name].members[pid] = time
            self.of_pid.setdefault(pid, {})[name] = None
        elif kind == "group.left":
            del self.groups[name].members[pid]
            del self.of_pid[pid][name]
            if not self.of_pid[pid]:
                del self.of_pid[pid]
        elif kind == "group.set":
            self.groups[name].board[data["key"]] = data["value"]
            self.groups[name].untrusted.pop(data["key"], None)
            if data.get("tainted"):
                self.groups[name].untrusted[data["key"]] = True
        else:
            del self.groups[name].board[data["key"]]
            self.groups[name].untrusted.pop(data["key"], None)
        if "v" in data and name in self.groups:
            self.groups[name].version = data["v"]

    def _keep(self, name: str, group: _Kept) -> None:
        self.groups[name] = group
        for pid in group.members:
            self.of_pid.setdefault(pid, {})[name] = None

    def _forget_members(self, name: str) -> None:
        for pid in self.groups[name].members:
            del self.of_pid[pid][name]
            if not self.of_pid[pid]:
                del self.of_pid[pid]

    def dump(self) -> Any:
        return self.groups

    def load(self, data: Any) -> None:
        for name, group in msgspec.convert(data, dict[str, _Kept]).items():
            self._keep(name, group)


class Groups(Subsystem):
    def __init__(self, core: Core[Process], mailboxes: Mailboxes) -> None:
        self._core = core
        self._mailboxes = mailboxes
        self.state = GroupState()
        self._join_listeners: list[tuple[str | None, Listener]] = []
        self._leave_listeners: list[tuple[str | None, Listener]] = []

    # ------------------------------------------------------------------ groups

    def create(self, name: str, *, exist_ok: bool = False) -> Ack:
        """Make an empty group; one of that name is NameTaken, unless that is fine."""
        self._core.raise_if_closed()
        printable(name, "a group's name", key="name")
        require("db.write", _board(name))
        if name in self.state.groups:
            if exist_ok:
                return acknowledge(self._core)
            raise NameTaken(f"there is a group {name!r} already", group=name)
        if len(self.state.groups) >= GROUPS_MAX:
            raise Overloaded(f"there are {GROUPS_MAX} groups, the most there may be", limit=GROUPS_MAX)
        if self._core.remote is not None:
            created: Ack = self._core.remote.groups.create(name, exist_ok=exist_ok)
            return created
        return self._fact("", "group.created", {"group": name})

    def get(self, name: str) -> Group:
        group = self._find(name)
        self._subscribe(name)
        self._mark_reader(group)
        return Group(name, tuple(group.members), tuple(group.board), group.created_at, group.version)

    def names(self) -> list[str]:
        return list(self.state.groups)

    def delete_group(self, name: str) -> Ack:
        """Forget a group and its blackboard; refused while it has members."""
        self._core.raise_if_closed()
        group = self._find(name)
        require("db.write", _board(name))
        if group.members:
            raise InvalidTransition(
                f"group {name!r} has {len(group.members)} members", hint="let them leave first", group=name
            )
        if self._core.remote is not None:
            deleted: Ack = self._core.remote.groups.delete(name)
            return deleted
        return self._fact("", "group.deleted", {"group": name})

    async def refresh(self, name: str) -> Group:
        """Return a group as its home shard has it now: in a cluster, wait until the copy here has caught up."""
        self._core.raise_if_closed()
        self._find(name)
        if self._core.remote is not None:
            await self._core.remote.groups.refresh(name)
        return self.get(name)

    # ------------------------------------------------------------------ members

    def join(self, name: str, process: str | Handle) -> bool:
        """Put a live process in a group; False if it was in it. In a cluster it may be the address of one abroad."""
        self._core.raise_if_closed()
        group = self._find(name)
        if self._is_abroad(process):
            return self._ask_abroad("join", name, process)
        member = self._core.find_process(process)
        require("events.subscribe", name)
        require_send(member)
        if member.exit is not None:
            raise NoSuchProcess(f"process {member.pid} has ended and joins no group", pid=member.pid)
        if member.pid in group.members:
            return False
        self._change(member.pid, "group.joined", {"group": name})
        return True

    def leave(self, name: str, process: str | Handle) -> bool:
        """Take a process out of a group; False if it was not in it."""
        self._core.raise_if_closed()
        group = self._find(name)
        if self._is_abroad(process):
            return self._ask_abroad("leave", name, process)
        pid = process if isinstance(process, str) and process in group.members else self._core.find_process(process).pid
        if pid not in group.members:
            return False
        require_send(self._core.find(pid))
        self._leave(name, pid, "asked")
        return True

    def members(self, name: str) -> list[str]:
        """Pids, in the order they joined; in a cluster the addresses of those on other shards."""
        members = list(self._find(name).members)
        self._subscribe(name)
        return members

    def groups_of(self, process: str | Handle) -> list[str]:
        pid = (
            process
            if isinstance(process, str) and process in self.state.of_pid
            else self._core.find_process(process).pid
        )
        return list(self.state.of_pid.get(pid, ()))

    def process_ending(self, process: Process) -> None:
        if process.pid in self.state.of_pid:
            self.remove_ended(process.pid)

    def remove_ended(self, pid: str) -> None:
        """Remove a process that ended from all its groups."""
        if pid in self.state.of_pid:
            for name in list(self.state.of_pid[pid]):
                self._leave(name, pid, "ended")

    def _leave(self, name: str, pid: str, reason: str) -> None:
        self._change(pid, "group.left", {"group": name, "reason": reason})

    def _is_abroad(self, process: Any) -> bool:
        remote = self._core.remote
        return remote is not None and isinstance(process, str) and remote.knows(process)

    def _ask_abroad(self, what: str, name: str, address: Any) -> bool:
        """Have another shard put a process of its own in a group, or take it out; False if it is so already."""
        if what == "join":
            require("events.subscribe", name)
        require("process.send", address)
        remote = self._core.remote
        is_member = address in self._find(name).members
        if is_member is (what == "join") and (is_member or remote.groups.has_copy(name)):
            return False
        remote.groups.ask_member(what, name, address)
        return True

    def on_join(self, fn: Listener, *, group: str | None = None) -> Callable[[], None]:
        """Have `fn(group, pid)` called after each join, of one group or of all; gives a callable that ends it."""
        self._core.raise_if_elsewhere()
        return _listen(self._join_listeners, fn, group)

    def on_leave(self, fn: Listener, *, group: str | None = None) -> Callable[[], None]:
        self._core.raise_if_elsewhere()
        return _listen(self._leave_listeners, fn, group)

    def _tell(self, listeners: list[tuple[str | None, Listener]], name: str, pid: str) -> None:
        for wanted, fn in list(listeners):
            if wanted is not None and wanted != name:
                continue
            try:
                fn(name, pid)
            except Exception as error:  # noqa: BLE001 - a listener's mistake is its own; membership stands
                self._core.loop.call_exception_handler(
                    {"message": f"a listener of group {name} failed", "exception": error}
                )

    def broadcast(self, name: str, message: Any, *, exclude: Iterable[str] = ()) -> dict[str, LyraError | None]:
        """Put a message in every member's mailbox; gives what went wrong for each, or None.

        As with `kernel.send`, a message for a full mailbox waits in line for room. A process that broadcasts needs the
        right to send to the group; a member that it may not send to is left out, with that error.
        """
        self._core.raise_if_closed()
        group = self._find(name)
        require("process.send", name)
        self._mailboxes.encode(message)  # a message that cannot be encoded is refused before any member gets it
        remote = self._core.remote
        left_out = {exclude} if isinstance(exclude, str) else set(exclude)
        outcome: dict[str, LyraError | None] = {}
        for pid in list(group.members):
            if pid in left_out or (remote is not None and remote.knows(pid)):
                continue
            try:
                receiver = self._core.find(pid)
                require_send(receiver, name)
                self._mailboxes.send(receiver, message)
            except LyraError as error:
                outcome[pid] = error
            else:
                outcome[pid] = None
        if remote is not None:
            outcome.update(remote.groups.broadcast(name, message, left_out))
        return outcome

    # ------------------------------------------------------------------ the blackboard

    def bb_set(self, name: str, key: str, value: Any) -> Ack:
        """Write a value for all members to read."""
        self._core.raise_if_closed()
        group = self._find(name)
        require("db.write", _board(name))
        printable(key, "a blackboard's key", key="key")
        data = codec.encode(value)
        if len(data) > MESSAGE_BYTES_MAX:
            raise LimitExceeded(f"a value of {len(data)} bytes; at most {MESSAGE_BYTES_MAX} fit on a blackboard")
        if key not in group.board and len(group.board) >= BLACKBOARD_KEYS_MAX:
            raise LimitExceeded(
                f"the blackboard of {name!r} holds {BLACKBOARD_KEYS_MAX} values, the most there may be", group=name
            )
        row = {"group": name, "key": key, "value": codec.decode(data)}
        return self._change("", "group.set", {**row, "tainted": True} if self._core.taint.is_here else row)

    async def bb_compare(self, name: str, key: str, expected: Any, value: Any) -> bool:
        """Write a value if the one there is `expected` (None: there is none), and return whether it was.

        In a cluster this is decided at the group's home shard, so of several that compare with the same value only
        one succeeds; all else that is read here may be older than that.
        """
        self._core.raise_if_closed()
        group = self._readable(name)
        remote = self._core.remote
        if remote is not None:
            require("db.write", _board(name))
            printable(key, "a blackboard's key", key="key")
            data = {"key": key, "expected": _copy(expected), "value": _copy(value)}
            matched: bool = await remote.groups.compare(name, data, tainted=self._core.taint.is_here)
            return matched
        if group.untrusted.get(key):
            self._core.taint.mark_here(_BOARD)
        if group.board.get(key) != _copy(expected):
            return False
        await self.bb_set(name, key, value)
        return True

    def bb_get(self, name: str, key: str, default: Any = None) -> Any:
        group = self._readable(name)
        if group.untrusted.get(key):
            self._core.taint.mark_here(_BOARD)
        return _copy(group.board[key]) if key in group.board else default

    def bb_delete(self, name: str, key: str) -> bool:
        """Wipe a value off; False if there was none."""
        self._core.raise_if_closed()
        require("db.write", _board(name))
        if key not in self._find(name).board:
            return False
        self._change("", "group.unset", {"group": name, "key": key})
        return True

    def bb_keys(self, name: str) -> list[str]:
        group = self._readable(name)
        self._mark_reader(group)
        return list(group.board)

    def bb_snapshot(self, name: str) -> dict[str, Any]:
        """Return a copy of the whole blackboard."""
        group = self._readable(name)
        self._mark_reader(group)
        board: dict[str, Any] = _copy(group.board)
        return board

    # ------------------------------------------------------------------ after a restart

    def on_restored(self) -> None:
        """After a restart: remove members that are no longer in the process table."""
        for pid in list(self.state.of_pid):
            if self._is_abroad(pid):
                continue
            process = self._core.processes.get(pid)
            # One that diverged has no last row: with the right program it is back, and still a member.
            if process is None or (process.exit is not None and process.exit.reason != "divergence"):
                self.remove_ended(pid)

    def _change(self, pid: str, kind: str, data: dict[str, Any]) -> Ack:
        """Change a group, in a cluster through its home shard."""
        if self._core.remote is None:
            return self._fact(pid, kind, data)
        changed: Ack = self._core.remote.groups.change(pid, kind, data)
        return changed

    def _fact(self, pid: str, kind: str, data: dict[str, Any]) -> Ack:
        """Write a fact of this kernel's table, and tell the listeners of members."""
        seq = self._core.fact(self.state, pid, kind, data)
        if kind == "group.joined":
            self._tell(self._join_listeners, data["group"], pid)
        elif kind == "group.left":
            self._tell(self._leave_listeners, data["group"], pid)
        return Ack(self._core, seq)

    def _subscribe(self, name: str) -> None:
        """Have the home shard post its changes here from now on."""
        if self._core.remote is not None:
            self._core.remote.groups.subscribe(name)

    def _readable(self, name: Any) -> _Kept:
        """Return a group whose blackboard the process that runs here may read."""
        group = self._find(name)
        require("db.read", _board(name))
        self._subscribe(name)
        return group

    def _mark_reader(self, group: _Kept) -> None:
        """Mark the process that runs here, which gets all keys: a process that writes a value chooses its key, too."""
        if group.untrusted:
            self._core.taint.mark_here(_BOARD)

    def _find(self, name: Any) -> _Kept:
        group = self.state.groups.get(name) if isinstance(name, str) else None
        if group is None:
            raise NoSuchGroup(f"no group {name!r}", hint="kernel.groups.create(name) makes one", group=name)
        return group


def _listen(listeners: list[tuple[str | None, Listener]], fn: Listener, group: str | None) -> Callable[[], None]:
    if not callable(fn):
        raise ConfigError(f"a listener is a function of a group and a pid, not {fn!r}")
    require("events.subscribe", EVERYTHING if group is None else group)
    entry = (group, as_registered(fn))
    listeners.append(entry)

    def stop() -> None:
        for index, listener in enumerate(listeners):
            if listener is entry:
                del listeners[index]
                return

    return stop


def _board(name: str) -> str:
    """Return a group's blackboard, as a right names it."""
    return f"blackboard.{name}"


def _copy(value: Any) -> Any:
    return codec.decode(codec.encode(value))
