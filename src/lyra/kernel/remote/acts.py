"""Messages and spawns across shards.

A message goes to a mailbox abroad, a spawn begins a program there under a pid that the sender chose: the program knows
the address at once, and a post that arrives late or after a crash begins it all the same. A message whose receiver is
not there is dropped with an Event, as between processes of one shard. Why a spawn was refused is kept for whoever waits
for that process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec
from lyra.core.budgets.budget import Budget
from lyra.core.effect import canonical_hash
from lyra.core.naming import program_names
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, LyraError
from lyra.kernel.base.acting import check_right
from lyra.kernel.base.waiting import NO_WAIT
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.kernel.process.links import form_of, read_signal
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import take_entry
from lyra.kernel.programs.registry import unknown_program
from lyra.kernel.remote.posts import Part, Remote, read_tables, split_address

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lyra.kernel.assembly import KernelParts

_REFUSED_KEPT: Final = 1_000

# What a new process needs (`shard`, `near`, `resources`) → the shard that it begins on.
Place = Callable[[Mapping[str, Any]], str]


class Acts(Part):
    """See the module."""

    NAME: ClassVar[str] = "spawns"
    SENDS: ClassVar[frozenset[str]] = frozenset({"message", "spawn"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._parts = parts
        self._remote = remote
        self.place: Place = lambda _needs: remote.shard  # filled in by the cluster
        self.refused: dict[str, Any] = {}  # pid that a shard wanted to spawn here → why it did not begin; the newest

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.refused[pid] = data["refused"]
        while len(self.refused) > _REFUSED_KEPT:
            del self.refused[next(iter(self.refused))]

    def dump(self) -> Any:
        return {"refused": self.refused}

    def load(self, data: Any) -> None:
        self.refused = read_tables(data, ("refused",))["refused"]

    # ------------------------------------------------------------------ messages

    def send(self, process: Process, key: rows.Key, digest: bytes, address: str, message: Any) -> Awaitable[Any]:
        """Send a message of a process to an address abroad; the row is the answer that a replay finds."""
        self._post_message(address, message, process)
        note_done(process, key, "send", address, digest)
        return NO_WAIT

    def send_from_outside(self, address: str, message: Any) -> int:
        """Send a message that no process sends; gives the row of its post."""
        return self._post_message(address, message, None)

    def _post_message(self, address: str, message: Any, sender: Process | None) -> int:
        shard, pid = split_address(address)
        data: dict[str, Any] = {"to": pid, "form": form_of(message), "message": self._parts.mailboxes.encode(message)}
        if sender is None:
            return self._remote.post(shard, "message", data)
        data["from"] = self._remote.address_of(sender.known_as)
        data.update(mark_of(sender))
        return self._remote.post(shard, "message", data, pid=sender.pid)

    def _take_message(self, sender: str, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["to"])
        if process is None:
            self._core.publish(data["to"], "message.dropped", {"count": 1, "reason": "no such process"})
            return
        take_mark(process, data, "a message from", data.get("from", sender))
        self._parts.mailboxes.deliver(process, read_signal(data["form"], data["message"]))

    # ------------------------------------------------------------------ spawns

    def spawn(
        self,
        process: Process,
        key: rows.Key,
        word: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
        needs: dict[str, Any],
    ) -> str | None:
        """Start a program on another shard; gives its address, or None where it belongs on this one."""
        remote, parts = self._remote, self._parts
        digest = canonical_hash(word, args, {})
        if process.replay is not None:
            entry = process.replay.get(key)
            if entry is not None and entry.kind == "spawn" and entry.link:  # it began on this shard
                return None
            entry = take_entry(process, key, "spawn", word, digest, (args, {}))
            if entry is not None:
                if entry.error is not None:
                    raise error_from_row(entry.error)
                return str(codec.decode(bytes(entry.value)))
        shard = needs.get("shard") or self.place(needs)
        if shard == remote.shard:
            return None
        if shard not in remote.shards:
            raise ConfigError(f"there is no shard {shard!r}", hint="lyra cluster status lists them", key="shard")
        grant = process.grant
        if not grant.is_all:
            program = parts._programs.get(word)
            for names in (program_names(word),) if program is None else parts.lifetimes.list_spawned(program, args):
                check_right(process, "process.spawn", names)
        if options.get("grant") is not None:
            grant = grant.narrow(Grant.of(options["grant"]))
        pid = options.get("pid") or f"{remote.shard}.{remote.next_number(shard)}"
        data: dict[str, Any] = {
            "pid": pid,
            "program": word,
            "args": codec.encode(args),
            "by": remote.address_of(process.known_as),
            **{name: options[name] for name in ("name", "priority", "recovery_attempts") if options.get(name)},
            **mark_of(process),
        }
        if not grant.is_all:
            data["grant"] = grant.to_data()
        if options.get("budget") is not None:
            data["budget"] = Budget.of(options["budget"]).to_data()["limits"]
        remote.post(shard, "spawn", data, pid=process.pid)
        address = f"{shard}/{pid}"
        remote.ties.add_child(process, address)
        note_done(process, key, "spawn", word, digest, value=address)
        return address

    def _take_spawn(self, sender: str, data: dict[str, Any]) -> None:
        core, parts = self._core, self._parts
        if data["pid"] in core.processes:
            return
        program = parts._programs.get(data["program"])
        try:
            if program is None:
                raise unknown_program(data["program"])
            process = parts.lifetimes.start(
                program,
                tuple(parts._programs.arguments(program, data["args"])),
                parent=None,
                pid=data["pid"],
                name=data.get("name"),
                budget=data.get("budget"),
                grant=None if data.get("grant") is None else Grant.from_data(data["grant"]),
                priority=data.get("priority"),
                recovery_attempts=data.get("recovery_attempts"),
            )
        except LyraError as refusal:
            self._remote.note(self, {"refused": error_to_row(refusal)}, pid=data["pid"])
            return
        take_mark(process, data, "its parent", data.get("by", sender))

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002 (one signature)
        if what == "message":
            self._take_message(sender, data)
        else:
            self._take_spawn(sender, data)


def mark_of(process: Process) -> dict[str, Any]:
    """Return what a post says of the mark of the process whose text it carries."""
    labels = process.core.taint.state
    return {"mark": {"own": process.pid in labels.own}} if process.pid in labels.pids else {}


def take_mark(process: Process, data: Mapping[str, Any], how: str, address: str) -> None:
    """Mark a process that gets text of a marked one abroad."""
    mark = data.get("mark")
    if mark is not None:
        process.core.taint.mark(process.pid, f"{how} {address}", own=mark.get("own") is True)


def note_done(process: Process, key: rows.Key, form: str, name: str, digest: bytes, value: Any = None) -> None:
    """Write the answer of a call that posted something, in the batch of the post."""
    journal = process.core.journal
    assert journal is not None
    row = rows.Finished(key, rows.Raw(codec.encode(value)), name=name, hash=digest, form=form)
    journal.write(process.pid, "effect.finished", rows.encode(row))
