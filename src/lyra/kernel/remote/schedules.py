"""Schedules of a cluster: programs that start at set times, each firing once.

A schedule is kept by the home shard of its name. A firing is a fact of that shard in one batch with the start of the
program, or with the post that starts it on another shard, under a pid made of the name and the due time: a crash loses
both or neither. The shard remembers the last due time that it settled and only goes forward from there, so a kernel
whose clock is behind or ahead of the last one's starts nothing a second time.

Time is `Core.now`, which rows are stamped with. A due time that has passed by more than `SCHEDULE_LATE_S` was missed:
the shard was open nowhere. `missed` says what becomes of those: the newest is made up for (`once`), none (`skip`), or
all of them, in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict

from lyra.core import codec
from lyra.core.budgets.budget import Budget
from lyra.core.checking.check import check_keys, printable, real
from lyra.core.limits import (
    NAME_LENGTH_MAX,
    SCHEDULE_EVERY_S_MIN,
    SCHEDULE_LATE_S,
    SCHEDULE_MISSED_MAX,
    SCHEDULES_MAX,
)
from lyra.core.naming import get_qualified_name, program_names
from lyra.core.rights.capability import Grant
from lyra.core.schedule import Schedule, parse_cron
from lyra.errors import ConfigError, LyraError, NameTaken, Overloaded
from lyra.kernel.base.acting import acting, check_right, require
from lyra.kernel.programs.handle import Ack
from lyra.kernel.programs.registry import program_of, unknown_program
from lyra.kernel.remote.messages import mark_of, take_mark
from lyra.kernel.remote.part import RemotePart, read_tables

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

MISSED: Final = {
    "once": "the newest of the missed firings is made up for",
    "skip": "no missed firing is made up for",
    "all": "all missed firings are made up for, in order",
}
_LOOK_S: Final = 60.0  # between two looks at the clock, which may have moved on while the machine slept
_RETRY_S: Final = 1.0  # after a start that was refused, such as that of a program not known yet
_PID_SPARE: Final = 40  # of a name's length, for the due time behind it
_KEPT: Final = ("since", "last", "fired")  # of an entry: what the home shard adds to its definition


class When(TypedDict, total=False):
    """When a schedule is due: one of these."""

    every_s: float  # an interval, counted from 1970
    at: float | datetime  # once
    cron: str  # five fields, in UTC


def make_entry(
    program: Any,
    args: tuple[Any, ...],
    when: Mapping[str, Any],
    *,
    missed: str = "once",
    shard: str | None = None,
    budget: Any = None,
    grant: Any = None,
    priority: str | None = None,
) -> dict[str, Any]:
    """Return the definition of a schedule as plain data, checked; ConfigError where it cannot be."""
    check_keys(when, When.__annotations__, "a schedule's time")
    given = {key: value for key, value in when.items() if value is not None}
    if len(given) != 1:
        raise ConfigError("a schedule has one of every_s, at and cron", hint='such as every_s=60 or cron="0 3 * * *"')
    if missed not in MISSED:
        raise ConfigError(f"missed is {missed!r}", hint=f"one of {', '.join(MISSED)}", key="missed")
    entry: dict[str, Any] = {
        "program": program if isinstance(program, str) else get_qualified_name(program_of(program)),
        "args": codec.encode(args),
        "missed": missed,
        **_check_time(given),
    }
    if shard is not None:
        entry["shard"] = shard
    if budget is not None:
        entry["budget"] = Budget.of(budget).to_data()["limits"]
    if grant is not None:
        entry["grant"] = Grant.of(grant).to_data()
    if priority is not None:
        entry["priority"] = priority
    return entry


def _check_time(given: Mapping[str, Any]) -> dict[str, Any]:
    if "every_s" in given:
        return {"every_s": real(given["every_s"], "every_s", least=SCHEDULE_EVERY_S_MIN)}
    if "at" in given:
        moment = given["at"]
        if isinstance(moment, datetime):
            if moment.tzinfo is None:
                raise ConfigError(
                    f"at is {moment.isoformat()}, in no time zone", hint="datetime(…, tzinfo=UTC)", key="at"
                )
            moment = moment.timestamp()
        return {"at": real(moment, "at", least=0.0)}
    if not isinstance(given["cron"], str) or parse_cron(given["cron"]) is None:
        raise ConfigError(
            f"cron is {given['cron']!r}", hint="minute hour day month weekday, such as '0 3 * * 1-5'", key="cron"
        )
    return {"cron": given["cron"]}


def check_schedule_name(name: Any) -> str:
    """Return the name of a schedule; ConfigError where it is none."""
    if isinstance(name, str) and (len(name) > NAME_LENGTH_MAX - _PID_SPARE or name.startswith("~")):
        hint = f"use at most {NAME_LENGTH_MAX - _PID_SPARE} characters, the first not ~"
        raise ConfigError(f"a schedule's name is {name!r}", hint=hint, key="name")
    return printable(name, "a schedule's name", key="name")


class Schedules(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "schedules"
    SENDS: ClassVar[frozenset[str]] = frozenset({"schedule"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._parts = parts
        self._remote = remote
        self.entries: dict[str, dict[str, Any]] = {}  # name → definition, since when, last due time settled, firings
        self._due: dict[str, float] = {}  # name → when to look at it next
        self._late: dict[str, str] = {}  # name → why a firing that is due could not be made yet
        self._timer: Timer | None = None
        self._core.subsystems.stop.append(self._stop)

    # ------------------------------------------------------------------ what it remembers

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        if "set" in data:
            self.entries[data["set"]] = data["entry"]
        elif "removed" in data:
            self.entries.pop(data["removed"], None)
        else:
            entry = self.entries[data["settled"]]
            entry["last"] = data["due"]
            entry["fired"] += data["fired"]
            if "at" in entry:
                del self.entries[data["settled"]]

    def dump(self) -> Any:
        return {"entries": self.entries}

    def load(self, data: Any) -> None:
        self.entries = read_tables(data, ("entries",))["entries"]

    # ------------------------------------------------------------------ what callers ask

    def add(
        self,
        name: str,
        program: Any,
        *args: Any,
        missed: str = "once",
        shard: str | None = None,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
        **when: Any,
    ) -> Ack:
        """Start a program `every_s` seconds, `at` a time or by `cron`, on a shard, else on the name's home shard.

        A schedule of that name is replaced; the same definition again changes nothing.
        """
        self._core.raise_if_closed()
        check_schedule_name(name)
        entry = make_entry(
            program, args, when, missed=missed, shard=shard, budget=budget, grant=grant, priority=priority
        )
        if shard is not None and shard not in self._remote.shards:
            raise ConfigError(f"there is no shard {shard!r}", hint="lyra cluster status lists them", key="shard")
        if not isinstance(program, str):
            self._parts._programs.name(program)
        maker = acting()
        if maker is not None:
            right = maker.grant
            if not right.is_all:
                check_right(maker, "process.spawn", program_names(entry["program"]))
                entry["grant"] = right.narrow(Grant.of(grant)).to_data() if grant is not None else right.to_data()
            entry.update(mark_of(maker), by=self._remote.address_of(maker.known_as))
        home = self._remote.home_of(name)
        if home == self._remote.shard:
            return Ack(self._core, self.put(name, entry))
        return Ack(self._core, self._remote.post(home, "schedule", {"name": name, "entry": entry}))

    def remove(self, name: str) -> Ack:
        """Forget a schedule; what it has started goes on."""
        self._core.raise_if_closed()
        require("process.send", name)
        home = self._remote.home_of(name)
        if home == self._remote.shard:
            return Ack(self._core, self.drop(name))
        return Ack(self._core, self._remote.post(home, "schedule", {"name": name, "entry": None}))

    def list_kept(self) -> list[dict[str, Any]]:
        """Return the schedules that this shard keeps: what each starts, when next, how often it did."""
        return [self._describe(name, entry) for name, entry in self.entries.items()]

    def _describe(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        kept = ("program", "missed", "every_s", "at", "cron", "since", "fired", "priority")
        told = {key: entry[key] for key in kept if key in entry}
        return {
            "name": name,
            **told,
            "home": self._remote.shard,
            "shard": entry.get("shard") or self._remote.shard,
            "last_due": entry["last"] if entry["fired"] else None,
            "next_due": find_next(entry, entry["last"]),
            "problem": self._late.get(name, ""),
        }

    # ------------------------------------------------------------------ at the home of a schedule

    def put(self, name: str, entry: dict[str, Any]) -> int:
        """Keep a schedule whose home is this shard; gives the row."""
        known = self.entries.get(name)
        now = self._core.now()
        if known is not None:
            if {key: value for key, value in known.items() if key not in _KEPT} == entry:
                return self._last_row()
        elif len(self.entries) >= SCHEDULES_MAX:
            raise Overloaded(
                f"shard {self._remote.shard} keeps {SCHEDULES_MAX} schedules, the most there may be",
                limit=SCHEDULES_MAX,
            )
        last = -math.inf if "at" in entry else now
        kept = {**entry, "since": now, "last": 0.0 if last < 0 else last, "fired": 0}
        self._late.pop(name, None)
        row = self._remote.note(self, {"set": name, "entry": kept})
        self._plan(name)
        self._arm()
        return row

    def drop(self, name: str) -> int:
        self._due.pop(name, None)
        self._late.pop(name, None)
        if name not in self.entries:
            return self._last_row()
        return self._remote.note(self, {"removed": name})

    def _last_row(self) -> int:
        journal = self._core.journal
        return 0 if journal is None else journal.seq

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002
        if data["entry"] is None:
            self.drop(data["name"])
            return
        try:
            self.put(data["name"], data["entry"])
        except LyraError as refusal:
            self._core.publish("", "message.dropped", {"count": 1, "reason": refusal.message})

    # ------------------------------------------------------------------ firing

    def on_restored(self) -> None:
        for name in self.entries:
            self._plan(name)
        self._arm()

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _plan(self, name: str) -> None:
        entry = self.entries.get(name)
        due = None if entry is None else find_next(entry, entry["last"])
        if due is None:
            self._due.pop(name, None)
        else:
            self._due[name] = due

    def _arm(self) -> None:
        self._stop()
        core = self._core
        if self._due and not core.stopping:
            wait_s = min(max(min(self._due.values()) - core.now(), 0.0), _LOOK_S)
            self._timer = core.clock.call_at(core.clock.monotonic() + wait_s, self._ring)

    def _ring(self) -> None:
        core = self._core
        if core.stopping or core.draining or core.failure is not None:
            return
        now = core.now()
        for name in [name for name, due in self._due.items() if due <= now]:
            try:
                entry = self.entries[name]
                for due, is_made in list_firings(entry, now):  # one that is not made is passed over for good
                    if is_made:
                        self._begin(name, entry, due)
                    self._remote.note(self, {"settled": name, "due": due, "fired": int(is_made)})
            except LyraError as refusal:
                self._late[name] = refusal.message
                self._due[name] = now + _RETRY_S
            else:
                self._late.pop(name, None)
                self._plan(name)
        self._arm()

    def _begin(self, name: str, entry: dict[str, Any], due: float) -> None:
        """Start the program of one firing, here or by a post: in the batch of the row that says so."""
        core, parts, remote = self._core, self._parts, self._remote
        pid = make_pid(name, due)
        shard = entry.get("shard") or remote.shard
        data: dict[str, Any] = {"pid": pid, "program": entry["program"], "args": entry["args"]}
        data.update({key: entry[key] for key in ("budget", "grant", "priority", "mark", "by") if key in entry})
        if shard != remote.shard:
            data.setdefault("by", remote.address_of(name))
            remote.post(shard, "spawn", data)
            return
        if pid in core.processes:
            return
        program = parts._programs.get(entry["program"])
        if program is None:
            raise unknown_program(entry["program"], parts._programs)
        try:
            process = parts.lifetimes.start(
                program,
                tuple(parts._programs.arguments(program, entry["args"])),
                parent=None,
                pid=pid,
                budget=entry.get("budget"),
                grant=None if "grant" not in entry else Grant.from_data(entry["grant"]),
                priority=entry.get("priority"),
            )
        except NameTaken:
            return
        take_mark(process, data, "its schedule, made by", entry.get("by", ""))


def make_pid(name: str, due: float) -> str:
    """Return the pid of one firing of a schedule: its name and the due time in UTC."""
    moment = datetime.fromtimestamp(due, UTC)
    text = moment.isoformat(timespec="microseconds" if moment.microsecond else "seconds")
    return f"{name}@{text.removesuffix('+00:00')}Z"


def find_next(entry: Mapping[str, Any], after: float) -> float | None:
    """Return the first due time after another; None where there is none."""
    if "at" in entry:
        return float(entry["at"])
    if "every_s" in entry:
        step = entry["every_s"]
        count = math.floor(after / step) + 1
        return float(count * step if count * step > after else (count + 1) * step)
    moment = _read_cron(entry).next(datetime.fromtimestamp(after, UTC))
    return None if moment is None else moment.timestamp()


def _find_last(entry: Mapping[str, Any], now: float) -> float:
    """Return the newest due time that is not after `now`, which there is."""
    if "at" in entry:
        return float(entry["at"])
    if "every_s" in entry:
        return float(math.floor(now / entry["every_s"]) * entry["every_s"])
    moment = _read_cron(entry).last(datetime.fromtimestamp(now, UTC))
    assert moment is not None
    return moment.timestamp()


def _read_cron(entry: Mapping[str, Any]) -> Schedule:
    schedule = parse_cron(entry["cron"])
    assert schedule is not None  # it was checked when the entry was made
    return schedule


def list_firings(entry: Mapping[str, Any], now: float) -> list[tuple[float, bool]]:
    """Return the due times of a schedule that are settled now, in order, and whether the program starts for each.

    Only those up to now that are after the last one that was settled; of `all` the newest `SCHEDULE_MISSED_MAX`.
    """
    first = find_next(entry, entry["last"])
    if first is None or first > now:
        return []
    newest = max(_find_last(entry, now), first)
    if entry["missed"] != "all":
        return [(newest, entry["missed"] == "once" or now - newest <= SCHEDULE_LATE_S)]
    dues = [newest]
    while len(dues) < SCHEDULE_MISSED_MAX and dues[-1] > first:
        earlier = _find_last(entry, dues[-1] - 1e-3)
        if earlier < first:
            break
        dues.append(earlier)
    return [(due, True) for due in reversed(dues)]
