"""What a client asks of the whole cluster: names, questions to people, schedules, Events.

Part of `Cluster` (`client`), which says how hosts are asked and shards are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from lyra.cluster.directory import View
from lyra.cluster.event_stream import EventStream
from lyra.core.budgets.budget import Budget
from lyra.core.checking.check import short_text
from lyra.core.ids import unique_id
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import ConfigError, Conflict, NoSuchInterrupt, StoreError
from lyra.kernel.interrupts.interrupt import Answer
from lyra.kernel.remote.part import home_of
from lyra.kernel.remote.schedules import When, check_schedule_name, make_entry

_ASK_S = 3.0


class SharedBudget:
    """A budget that processes on all shards spend from: `await cluster.budget("$20")`, `spawn(…, budget=scope)`."""

    def __init__(self, calls: SharedCalls, name: str, home: str, limits: dict[str, Any]) -> None:
        self._calls = calls
        self.name = name
        self.home = home  # the shard that keeps it
        self.limits = limits

    def __repr__(self) -> str:
        return f"<SharedBudget {self.name} {self.limits}>"

    def terms(self) -> dict[str, Any]:
        """Return what a shard has to know of it that begins a process."""
        return {"home": self.home, "shared": self.name, "limits": Budget.of(self.limits).blocking()}

    async def read(self) -> dict[str, Any]:
        """Return its limits, what is used as far as its home knows, and what is lent beside that."""
        return await self._call({})

    async def close(self) -> None:
        """Say that no new process needs it. Those that have it spend on; then it may be forgotten."""
        await self._call({"close": True})

    async def _call(self, data: dict[str, Any]) -> dict[str, Any]:
        asked = {"shard": self.home, "name": self.name, **data}
        figures: dict[str, Any] = await self._calls.call_shard(self.home, "budget", asked)
        return figures


class SharedCalls:
    """See the module."""

    view: View

    async def budget(self, limits: Any, *, name: str | None = None) -> SharedBudget:
        """Make a budget for processes on all shards; the one of that name, where there is one with these limits."""
        word = short_text(name or f"~{unique_id()}", "a budget's name", most=NAME_LENGTH_MAX)
        view = self.view if self.view.shards else await self.refresh()
        data = Budget.of(limits).to_data()["limits"]
        scope = SharedBudget(self, word, home_of(f"budget {word}", view.shards), data)
        await scope._call({"limits": data})
        return scope

    async def refresh(self) -> View:
        raise NotImplementedError

    async def ask_hosts(
        self, method: str, data: dict[str, Any], *, timeout_s: float = 1.0, hosts: Iterable[str] | None = None
    ) -> list[tuple[str, Any]]:
        raise NotImplementedError

    async def call_shard(self, shard: str, method: str, data: dict[str, Any], *, timeout_s: float = 10.0) -> Any:
        raise NotImplementedError

    async def _gather(self, method: str, data: dict[str, Any]) -> list[Any]:
        """Return the rows of all hosts that answer."""
        rows: list[Any] = []
        for _, answer in await self.ask_hosts(method, data, timeout_s=_ASK_S):
            if isinstance(answer, list):
                rows += answer
        return rows

    # ------------------------------------------------------------------ names

    def _raise_if_partial(self, answers: list[tuple[str, Any]], what: str) -> None:
        """Raise StoreError where a host did not answer or a shard is open nowhere: it may have what is not found."""
        if any(isinstance(answer, BaseException) for _, answer in answers) or any(
            self.view.address_of(shard) is None for shard in self.view.shards
        ):
            raise StoreError(
                f"no shard that answers has {what}",
                hint="some do not answer at the moment: try again, or say SHARD/PID",
            )

    async def find_name(self, name: str) -> str | None:
        """Return the address of the process of that name; Conflict where several shards have one, StoreError where one
        that does not answer might."""
        answers = await self.ask_hosts("whereis", {"name": name}, timeout_s=_ASK_S)
        addresses = sorted(address for _, answer in answers if isinstance(answer, list) for address in answer)
        if not addresses:
            self._raise_if_partial(answers, f"a process named {name!r}")
        if len(addresses) > 1:
            raise Conflict(
                f"{len(addresses)} shards have a process named {name!r}: {', '.join(addresses)}",
                hint=f"say which: SHARD/{name}",
                name=name,
            )
        return addresses[0] if addresses else None

    # ------------------------------------------------------------------ questions to people

    async def interrupts(self) -> list[dict[str, Any]]:
        """List the questions of all shards that wait for an answer, the oldest first: who asks (`address`, `program`),
        what (`kind`, `question`, `message`) and since when (`since`)."""
        rows = await self._gather("interrupts", {})
        return sorted(rows, key=lambda row: (row["since"], row["shard"], row["id"]))

    async def resolve_interrupt(
        self, question: str, response: Answer | Mapping[str, Any], user_id: str | None = None
    ) -> dict[str, Any]:
        """Answer a question by its id, or the oldest one of the process at an address; returns once that is durable.

        As on one machine, another user's question is `Denied`, an empty answer a ConfigError where one is needed, and
        a second answer is refused, unless it is the first one again.
        """
        shard, slash, pid = question.partition("/")
        if slash:
            if shard not in (await self.refresh()).shards:
                raise ConfigError(f"there is no shard {shard!r}", hint="lyra cluster status lists them", key="shard")
            interrupt_id = await self.call_shard(shard, "find_interrupt", {"shard": shard, "pid": pid})
        else:
            shard, interrupt_id = await self._find_question(question), question
        answer = Answer.of(response)
        data = {
            "shard": shard,
            "id": interrupt_id,
            "answer": {
                "text": answer.text,
                "approved": answer.approved,
                "decision": answer.decision,
                "data": answer.data,
            },
            "user_id": user_id,
        }
        told: dict[str, Any] = await self.call_shard(shard, "resolve_interrupt", data)
        return told

    async def _find_question(self, interrupt_id: str) -> str:
        """Return the shard that has a question; a shard that is open nowhere may be the one, and then says so."""
        answers = await self.ask_hosts("has_interrupt", {"id": interrupt_id}, timeout_s=_ASK_S)
        for _, answer in answers:
            if isinstance(answer, str):
                return answer
        self._raise_if_partial(answers, f"the interrupt {interrupt_id!r}")
        raise NoSuchInterrupt(f"no interrupt {interrupt_id!r}", hint="cluster.interrupts() lists them", id=interrupt_id)

    # ------------------------------------------------------------------ schedules

    async def schedule(
        self,
        name: str,
        program: Any,
        *args: Any,
        shard: str | None = None,
        missed: str = "once",
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
        **when: Unpack[When],
    ) -> None:
        """Start a program `every_s` seconds, `at` a time or by `cron`, once each time; returns when that is durable.

        The process of a firing has a pid of the name and the due time. `shard` says where it begins, else on the home
        shard of the name. `missed` says what becomes of times at which the shard was open nowhere: `once`, `skip` or
        `all`. A schedule of that name is replaced; the same definition again changes nothing.
        """
        entry = make_entry(
            program, args, when, missed=missed, shard=shard, budget=budget, grant=grant, priority=priority
        )
        home = await self._find_home(name)
        if shard is not None and shard not in self.view.shards:
            raise ConfigError(f"there is no shard {shard!r}", hint="lyra cluster status lists them", key="shard")
        await self.call_shard(home, "schedule", {"shard": home, "name": name, "entry": entry})

    async def unschedule(self, name: str) -> bool:
        """Forget a schedule; what it has started goes on. False where there is none of that name."""
        home = await self._find_home(name)
        return bool(await self.call_shard(home, "schedule", {"shard": home, "name": name, "entry": None}))

    async def schedules(self) -> list[dict[str, Any]]:
        """List the schedules of all shards by name: what each starts, when next, how often it did."""
        return sorted(await self._gather("schedules", {}), key=lambda row: str(row["name"]))

    async def _find_home(self, name: str) -> str:
        return home_of(check_schedule_name(name), (await self.refresh()).shards)

    # ------------------------------------------------------------------ Events

    def events(self, after: Mapping[str, int] | None = None, kinds: Iterable[str] | None = None) -> EventStream:
        """Follow the Events of all shards, of some kinds or all: from now on, or from the position of another stream.

        A shard that `after` does not name is read from its oldest row on.
        """

        async def find_shards() -> Iterable[str]:
            return (await self.refresh()).shards

        return EventStream(self.call_shard, find_shards, after=after, kinds=kinds)
