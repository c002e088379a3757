"""Spawns across shards.

A spawn begins a program abroad under a pid that the sender chose: the program that spawns knows the address at once,
and a post that arrives late or after a crash begins it all the same. The shard of the new process remembers who spawned
it, who alone may stop it. Why a spawn was refused is kept for the processes that wait for it; a supervisor is told in
either case (`Started`), and waits for that before it starts the next child.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec
from lyra.core.budgets.budget import Budget
from lyra.core.effect import canonical_hash
from lyra.core.naming import program_names
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, LyraError, NameTaken
from lyra.kernel.base.acting import check_right
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.kernel.process.links import Started
from lyra.kernel.process.process import NORMAL, PRIORITIES, Process
from lyra.kernel.process.replay import take_entry
from lyra.kernel.programs.registry import unknown_program
from lyra.kernel.remote.messages import mark_of, note_done, take_mark
from lyra.kernel.remote.part import RemotePart, read_tables

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

_REFUSED_KEPT: Final = 1_000

# What a new process needs (`shard`, `near`, `resources`) → the shard that it begins on.
Place = Callable[[Mapping[str, Any]], str]


class Acts(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "spawns"
    SENDS: ClassVar[frozenset[str]] = frozenset({"spawn"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._parts = parts
        self._remote = remote
        self.place: Place = lambda _needs: remote.shard  # filled in by the cluster
        # Pid that a shard wanted to spawn here → the address of who spawned it, and why it did not begin; the newest.
        self.refused: dict[str, Any] = {}
        self.parents: dict[str, Any] = {}  # pid → the address of the process abroad that spawned it

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        """Remember a parent (None: forget it), or why a spawn was refused."""
        if "refused" in data:
            self.refused[pid] = [data.get("by", ""), data["refused"]]
            while len(self.refused) > _REFUSED_KEPT:
                del self.refused[next(iter(self.refused))]
        elif data["parent"] is None:
            self.parents.pop(pid, None)
        else:
            self.parents[pid] = data["parent"]

    def dump(self) -> Any:
        return {"refused": self.refused, "parents": self.parents}

    def load(self, data: Any) -> None:
        tables = read_tables(data, ("refused", "parents"))
        self.refused, self.parents = tables["refused"], tables["parents"]

    def forgotten(self, process: Process) -> None:
        if process.pid in self.parents:
            self._remote.note(self, {"parent": None}, pid=process.pid)

    def find_refusal(self, pid: str, by: str = "") -> dict[str, Any] | None:
        """Return why a process that `by` spawned (any process, where it is empty) did not begin here."""
        kept = self.refused.get(pid)
        return kept[1] if kept is not None and by in ("", kept[0]) else None

    # ------------------------------------------------------------------ spawning

    def spawn(
        self,
        process: Process,
        key: rows.Key,
        word: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
        needs: dict[str, Any],
    ) -> str | None:
        """Start a program on another shard; gives its address, or None where it belongs on this one.

        Where the `needs` say `tells`, the process gets a `Started` once the program has begun there, or was refused.
        """
        remote = self._remote
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
        data = self._describe(process, word, args, options, shard)
        if needs.get("tells"):
            data["tells"] = True
        remote.post(shard, "spawn", data, pid=process.pid)
        address = f"{shard}/{data['pid']}"
        remote.ties.add_child(process, address)
        note_done(process, key, "spawn", word, digest, value=address)
        return address

    def _describe(
        self, process: Process, word: str, args: tuple[Any, ...], options: dict[str, Any], shard: str
    ) -> dict[str, Any]:
        """Return the post that spawns a program, if the process may."""
        remote, parts, grant = self._remote, self._parts, process.grant
        if not grant.is_all:
            program = parts._programs.get(word)
            for names in (program_names(word),) if program is None else parts.lifetimes.list_spawned(program, args):
                check_right(process, "process.spawn", names)
        if options.get("grant") is not None:
            grant = grant.narrow(Grant.of(options["grant"]))
        data: dict[str, Any] = {
            "pid": options.get("pid") or f"{remote.shard}.{remote.next_number(shard)}",
            "program": word,
            "args": codec.encode(args),
            "by": remote.address_of(process.pid),
            **({"tainted": True} if options.get("tainted") else {}),
            **mark_of(process),
        }
        if options.get("name") is not None:
            data["name"] = options["name"]
        priority = options.get("priority") or PRIORITIES[process.priority]
        if priority != PRIORITIES[NORMAL]:
            data["priority"] = priority
        attempts = options.get("recovery_attempts")
        if attempts is None:
            attempts = process.recovery_attempts_most()
        if attempts != self._core.recovery_attempts:
            data["recovery_attempts"] = attempts
        if not grant.is_all:
            data["grant"] = grant.to_data()
        limits = Budget.of(options.get("budget")).to_data()["limits"]
        loan = remote.loans.lend(process, shard, limits)
        if loan is not None:
            data["loan"] = loan
        seconds = _time_left(parts, process, limits)
        if seconds is not None:
            limits["seconds"] = seconds
        if limits:
            data["budget"] = limits
        return data

    # ------------------------------------------------------------------ what arrives

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002 (one signature)
        remote, pid, by = self._remote, data["pid"], data.get("by", "")  # a schedule has no process
        refusal: dict[str, Any] | None = None
        try:
            self._begin(sender, data)
        except Exception as error:  # noqa: BLE001 - arguments of another version may not fit in any way
            refusal = error_to_row(error)
            remote.note(self, {"refused": refusal, "by": by}, pid=pid)
        if data.get("tells"):
            remote.messages.tell(by, Started(remote.address_of(pid), refusal))

    def _begin(self, sender: str, data: dict[str, Any]) -> None:
        loans, budget = self._remote.loans, data.get("budget")
        if data["pid"] in self._core.processes:
            if data.get("loan") is not None:
                loans.decline(sender, data["loan"])
            raise NameTaken(f"there is a process {data['pid']!r} already", pid=data["pid"])
        loan = None if data.get("loan") is None else loans.borrow(data["pid"], sender, data["loan"], budget or {})
        try:
            process = self._start(data, budget if loan is None else loan)
        except BaseException:
            if loan is not None:
                loans.give_up(loan)
            raise
        loans.process_started(process)
        take_mark(process, data, "its parent", data.get("by", ""))

    def _start(self, data: dict[str, Any], budget: Any) -> Process:
        parts, pid = self._parts, data["pid"]
        program = parts._programs.get(data["program"])
        if program is None:
            raise unknown_program(data["program"], parts._programs)
        by = data.get("by", "")
        if by:
            self._remote.note(self, {"parent": by}, pid=pid)
        try:
            return parts.lifetimes.start(
                program,
                tuple(parts._programs.arguments(program, data["args"])),
                parent=None,
                pid=pid,
                name=data.get("name"),
                budget=budget,
                grant=None if data.get("grant") is None else Grant.from_data(data["grant"]),
                priority=data.get("priority"),
                recovery_attempts=data.get("recovery_attempts"),
                tainted=data.get("tainted") is True,
            )
        except LyraError:
            if by:
                self._remote.note(self, {"parent": None}, pid=pid)
            raise


def _time_left(parts: KernelParts, process: Process, limits: Mapping[str, Any]) -> float | None:
    """Return the seconds that the scopes of a process leave to a child, which may have `limits` of its own."""
    now = parts.core.clock.monotonic()
    times = [] if limits.get("seconds") is None else [float(limits["seconds"])]
    for scope in process.budget.chain():
        due = parts.lifetimes.deadlines.due(scope)
        if due is not None:
            times.append(max(due - now, 0.001))
    return min(times, default=None)
