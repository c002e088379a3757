"""Services of all shards: each shard knows the registrations of the others, and calls a handler abroad directly.

Registrations, health and whether there is a handler are posted to all shards; what is in the registry of this one
(`services.registry`) stays as it is. A dispatch takes a handler of its own shard first. Where there is none with room,
the least loaded healthy one abroad is called once for each try: the call is not durable, its capacity is counted where
the handler is, and the load comes back with each answer.

A shard whose host is dead is known by the directory, or by a call that got no answer: its services take nothing until
it is open elsewhere. A shard that opens says that its services have no handlers, until its program registers them.

Agents for stages of pipelines (`SharedAgents`) are known by name in the same way. A stage whose agent this shard has
not is run where it is registered, as a pipeline of one stage in a process there (`pipelines.runner.run_stage_abroad`):
both shards journal it, so that it is run once whichever dies. Agents of workers are not told, since workers serve every
shard. A shard that opens says that it has none, until its program registers them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import check_integer, real
from lyra.core.envelope import Envelope
from lyra.core.limits import RETRY_ATTEMPTS_MAX
from lyra.core.policies.retry import Backoff, Retry
from lyra.errors import (
    Conflict,
    DeadlineExceeded,
    EffectFailed,
    LyraError,
    NoSuchAgent,
    NoSuchService,
    Overloaded,
    ProcessError,
)
from lyra.errors import StoreError as ShardSilent
from lyra.kernel.base.acting import acting, require
from lyra.kernel.base.waiting import in_time
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.kernel.remote.messages import mark_of, take_mark
from lyra.kernel.remote.part import RemotePart, drop_item, read_tables
from lyra.kernel.services.registry import DISPATCH_BACKOFF, worth_another
from lyra.kernel.services.service import (
    INSTANCE,
    STATUSES,
    InferenceResponse,
    ServiceInfo,
    ServiceRequest,
    ServiceResponse,
    has_model,
)

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote


_CALL_S: Final = 3_600.0  # of a request that names no time of its own
_SILENT_S: Final = 3.0  # that a shard which did not answer is asked last
_LOAD_S: Final = 2.0  # that a load which came with an answer counts
_TABLES: Final = ("known", "posted")

# Shard, method and data → the answer; `timeout_s` bounds it.
CallShard = Callable[..., Awaitable[Any]]
Place = tuple[str, str]  # shard and service


class SharedServices(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "services"
    SENDS: ClassVar[frozenset[str]] = frozenset({"service"})
    KEEPS: ClassVar[frozenset[str]] = SENDS

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._registry = parts.services
        self._remote = remote
        self.known: dict[str, dict[str, Any]] = {}  # shard → name → registration
        self.posted: dict[str, dict[str, Any]] = {}  # name → what the other shards were told of it
        # Filled in by the cluster: how another shard is called, and whether it is open as far as is known.
        self.call: CallShard | None = None
        self.is_open: Callable[[str], bool] = lambda _shard: True
        self._flying: dict[Place, int] = {}  # requests of this shard that are on their way
        self._sent: dict[Place, int] = {}
        self._loads: dict[Place, tuple[float, int]] = {}  # when an answer came, and the load that came with it
        self._silent: dict[str, float] = {}  # shard → until when it is asked last

    # ------------------------------------------------------------------ what it remembers

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if data["info"] is None:
            self.posted.pop(data["name"], None)
        else:
            self.posted[data["name"]] = data["info"]

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if data["info"] is None:
            drop_item(self.known, shard, data["name"])
        else:
            self.known.setdefault(shard, {})[data["name"]] = data["info"]

    def dump(self) -> Any:
        return {name: getattr(self, name) for name in _TABLES}

    def load(self, data: Any) -> None:
        for name, table in read_tables(data, _TABLES).items():
            setattr(self, name, table)

    # ------------------------------------------------------------------ what the others are told

    def tell(self, name: str) -> None:
        """Post how a service of this shard stands, where the others know otherwise."""
        service = self._registry.state.services.get(name)
        info = None
        if service is not None:
            kept = {key: service[key] for key in service if key not in ("name", "current_load", "last_health_check")}
            info = {**kept, "handler": self._registry.has_handler(name)}
            if name in self._registry.state.untrusted:
                info["tainted"] = True
        if self._core.journal is None or self._core.journal.frozen or self._core.stopping:
            return
        if self.posted.get(name) != info:
            for shard in sorted(self._remote.shards):
                if shard != self._remote.shard:
                    self._remote.post(shard, "service", {"name": name, "info": info}, refusable=False)

    def on_restored(self) -> None:
        for name in list(self.posted):
            self.tell(name)

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002
        self._silent.pop(sender, None)

    # ------------------------------------------------------------------ what is known of the others

    def list_infos(self) -> list[ServiceInfo]:
        """Return the services abroad that this shard has not, as they are known here."""
        own = self._registry.state.services
        return [
            self._describe(shard, name, info)
            for shard, services in sorted(self.known.items())
            for name, info in services.items()
            if name not in own
        ]

    def find_info(self, name: str) -> ServiceInfo | None:
        return next((info for info in self.list_infos() if info.name == name), None)

    def knows(self, name: Any) -> bool:
        """Return whether a service of that name is registered on another shard, well or not."""
        return any(name in services for services in self.known.values())

    def _describe(self, shard: str, name: str, info: dict[str, Any]) -> ServiceInfo:
        if info.get("tainted"):
            self._core.taint.mark_here(f"the service {shard}/{name}")
        told = {key: value for key, value in info.items() if key not in ("handler", "tainted")}
        takes = info["handler"] and self.is_open(shard) and not self._is_silent(shard)
        load = self._measure_load((shard, name))
        told.update(metadata={**info["metadata"], "shard": shard}, current_load=load)
        return ServiceInfo(**{**told, "name": name, "status": info["status"] if takes else "unhealthy"})

    def _is_silent(self, shard: str) -> bool:
        return self._silent.get(shard, 0.0) > self._core.clock.monotonic()

    def _measure_load(self, place: Place) -> int:
        told_at, load = self._loads.get(place, (0.0, 0))
        is_new = self._core.clock.monotonic() - told_at <= _LOAD_S
        return max(self._flying.get(place, 0), load if is_new else 0)

    def list_places(self, word: str, *, is_model: bool = False) -> list[Place]:
        """Return the handlers abroad that a word means (a name, a capability or a type, or a model), the best first."""
        named: list[Place] = []
        able: list[Place] = []
        typed: list[Place] = []
        for shard, services in self.known.items():
            if not self.is_open(shard):
                continue
            for name, info in services.items():
                if not info["handler"] or STATUSES[info["status"]](info["max_concurrent"]) == 0:
                    continue
                if is_model:
                    if info["service_type"] == "inference" and has_model({**info, "name": name}, word):
                        named.append((shard, name))
                elif word in (name, name.rpartition(INSTANCE)[0]):
                    named.append((shard, name))
                elif word in info["capabilities"]:
                    able.append((shard, name))
                elif word == info["service_type"]:
                    typed.append((shard, name))
        return sorted(named or able or typed, key=self._rank)

    def _rank(self, place: Place) -> tuple[Any, ...]:
        shard, name = place
        info, load = self.known[shard][name], self._measure_load(place)
        room = STATUSES[info["status"]](info["max_concurrent"]) > load
        in_use = load / info["max_concurrent"]
        sick = info["status"] != "healthy"
        return self._is_silent(shard), not room, sick, in_use, self._sent.get(place, 0), shard

    # ------------------------------------------------------------------ calling

    async def dispatch(
        self,
        word: str,
        request: Any,
        timeout_s: float | None,
        max_retries: int,
        backoff: Any,
        *,
        is_model: bool = False,
    ) -> ServiceResponse:
        """Have a handler abroad answer a request, with the time-out and the retries of `kernel.dispatch`. The answer of
        a model is an InferenceResponse, with its address as the service."""
        core = self._core
        limit_s = None if timeout_s is None else real(timeout_s, "timeout_s", above=0.0)
        retry = Retry(
            max_attempts=1 + check_integer(max_retries, "max_retries", most=RETRY_ATTEMPTS_MAX - 1),
            backoff=DISPATCH_BACKOFF if backoff is None else Backoff.of(backoff),
        )
        wanted = self._registry.read_request(request)
        envelope = None if wanted.envelope is None else wanted.envelope.to_data()
        fields = {"pid": wanted.pid, "metadata": wanted.metadata, "user_id": wanted.user_id, "envelope": envelope}
        data: dict[str, Any] = {"request": codec.encode(fields)}
        process = acting()
        if process is not None and process.core is core:
            data["from"] = self._remote.address_of(process.known_as)
            data.update(mark_of(process))
        with core.flight:
            work = self._try_places(word, data, retry, limit_s, is_model=is_model)
            if limit_s is None:
                return await work
            late = DeadlineExceeded(
                f"dispatch timeout: service {word} gave no answer within {limit_s:g} s",
                hint="raise timeout_s, or look at the service's load",
                name=word,
                timeout_s=limit_s,
            )
            return await in_time(core.clock, work, limit_s, late)

    async def _try_places(
        self, word: str, data: dict[str, Any], retry: Retry, limit_s: float | None, *, is_model: bool
    ) -> ServiceResponse:
        core = self._core
        began = core.clock.monotonic()
        attempt = 1
        while True:
            failure: LyraError
            response: ServiceResponse | None = None
            try:
                response = await self._ask_one(word, data, limit_s or _CALL_S, is_model=is_model)
            except LyraError as error:
                failure = error
            else:
                failure = EffectFailed(response.error or "")
            if response is not None and response.error is None:
                break
            # A shard that fell silent may have done the work: it is done again only where retries are asked for.
            is_lost = isinstance(failure, ShardSilent)
            if not (attempt < retry.max_attempts if is_lost else worth_another(retry, failure, attempt)):
                break
            await core.outside_pause(retry.delay(attempt, core.rng, failure))
            attempt += 1
        if response is None:
            raise failure
        answer: ServiceResponse = msgspec.structs.replace(
            response, retries=attempt - 1, duration_s=core.clock.monotonic() - began
        )
        return answer

    async def _ask_one(self, word: str, data: dict[str, Any], timeout_s: float, *, is_model: bool) -> ServiceResponse:
        """Have the best place answer; one that certainly did nothing is passed over for the next."""
        refusal: LyraError | None = None
        for place in self.list_places(word, is_model=is_model):
            shard, name = place
            if not is_model:  # that needs the right to the model
                require("process.send", name, word)
            self._flying[place] = self._flying.get(place, 0) + 1
            self._sent[place] = self._sent.get(place, 0) + 1
            try:
                if self.call is None:
                    raise Conflict(f"shard {shard} cannot be called", elsewhere=True, shard=shard)
                asked = {**data, "shard": shard, "name": name}
                answer = self._read_answer(place, await self.call(shard, "dispatch", asked, timeout_s=timeout_s))
                if not is_model:
                    return answer
                return InferenceResponse(**msgspec.structs.asdict(answer), model=word, service="/".join(place))
            except Overloaded as full:
                refusal = full
                most = self.known.get(shard, {}).get(name, {}).get("max_concurrent", 1)
                self._loads[place] = (self._core.clock.monotonic(), most)
            except Conflict as elsewhere:
                if not elsewhere.fields.get("elsewhere"):
                    raise
                refusal = elsewhere
                self._silent[shard] = self._core.clock.monotonic() + _SILENT_S
            except ShardSilent:
                self._silent[shard] = self._core.clock.monotonic() + _SILENT_S
                raise
            except ProcessError as gone:  # its kernel is closing, or the service went away meanwhile
                if type(gone) is not ProcessError and not isinstance(gone, NoSuchService):
                    raise
                refusal = gone
            finally:
                self._flying[place] -= 1
        if refusal is None and self.knows(word):
            hint = "its handlers are registered again when their shards are open: lyra cluster status says where"
            refusal = Overloaded(f"service {word} is unhealthy on every shard that has it", hint=hint, name=word)
        raise refusal or NoSuchService(
            f"no service {word!r} takes requests", hint="kernel.services.list_services() lists them", name=word
        )

    def _read_answer(self, place: Place, answer: dict[str, Any]) -> ServiceResponse:
        core, process = self._core, acting()
        self._loads[place] = (core.clock.monotonic(), answer["load"])
        self._silent.pop(place[0], None)
        if process is not None and process.core is core:
            take_mark(process, answer, "an answer of", "/".join(place))
        if "failure" in answer:
            raise error_from_row(answer["failure"])
        told = codec.decode(answer["response"])
        envelope = told["envelope"]
        return ServiceResponse(
            envelope=None if envelope is None else Envelope.from_data(envelope),
            metadata=told["metadata"],
            error=told["error"],
        )

    async def answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of another shard with a handler of this one."""
        core, registry, name = self._core, self._registry, data["name"]
        core.raise_if_closed()
        if not registry.has_handler(name):
            raise NoSuchService(f"service {name!r} has no handler on shard {self._remote.shard}", name=name)
        fields = codec.decode(data["request"])
        if fields["envelope"] is not None:
            fields["envelope"] = Envelope.from_data(fields["envelope"])
        owner = core.processes.get(registry.find_owner(name))
        if owner is not None:
            take_mark(owner, data, "a request of", data.get("from", "another shard"))
        try:
            response = await registry.dispatch_here(name, ServiceRequest(**fields))
        except Overloaded:
            raise
        except LyraError as failure:  # its words are the handler's, so that the mark goes with it
            mark = {} if owner is None else mark_of(owner)
            return {"failure": error_to_row(failure), "load": registry.measure_load(name), **mark}
        envelope = None if response.envelope is None else response.envelope.to_data()
        told = {"envelope": envelope, "metadata": response.metadata, "error": response.error}
        mark = {} if owner is None else mark_of(owner)
        return {"response": codec.encode(told), "load": registry.measure_load(name), **mark}


class SharedAgents(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "agents"
    SENDS: ClassVar[frozenset[str]] = frozenset({"agent"})
    KEEPS: ClassVar[frozenset[str]] = SENDS

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._agents = parts.orchestrator.agents
        self._remote = remote
        self.known: dict[str, dict[str, Any]] = {}  # agent → shards that have it
        self.posted: dict[str, Any] = {}  # agents of this shard that the others know
        self._sent: dict[str, int] = {}  # shard → runs that it was given

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if data["on"]:
            self.posted[data["name"]] = True
        else:
            self.posted.pop(data["name"], None)

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if data["on"]:
            self.known.setdefault(data["name"], {})[shard] = True
        else:
            drop_item(self.known, data["name"], shard)

    def dump(self) -> Any:
        return {"known": self.known, "posted": self.posted}

    def load(self, data: Any) -> None:
        tables = read_tables(data, ("known", "posted"))
        self.known, self.posted = tables["known"], tables["posted"]

    def tell(self, name: str) -> None:
        """Post whether this shard has an agent, where the others know otherwise."""
        journal, agent = self._core.journal, self._agents.find(name)
        if journal is None or journal.frozen or self._core.stopping:
            return
        has_agent = agent is not None and agent.outside is None
        if has_agent is not (name in self.posted):
            for shard in sorted(self._remote.shards):
                if shard != self._remote.shard:
                    self._remote.post(shard, "agent", {"name": name, "on": has_agent}, refusable=False)

    def on_restored(self) -> None:
        for name in list(self.posted):
            self.tell(name)

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002
        self._agents.wake(data["name"])

    def list_places(self, name: str) -> list[str]:
        """Return the shards that have an agent: those that are open first, and of them those with the fewest runs."""
        places = self.known.get(name, {})
        return sorted(
            places, key=lambda shard: (not self._remote.services.is_open(shard), self._sent.get(shard, 0), shard)
        )

    def choose(self, name: str) -> str:
        """Return the shard that the next run of an agent is given to."""
        places = self.list_places(name)
        if not places:
            raise NoSuchAgent(f"no shard has the agent {name!r} any more", name=name)
        self._sent[places[0]] = self._sent.get(places[0], 0) + 1
        return places[0]
