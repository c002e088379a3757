"""The agents that run stages here, by name: functions of the envelope, and declarations that run as processes.

A function gives a mapping or an `AgentResult`; one that is not async runs in a thread. A declaration (a
`lyra.agents.Agent`) brings the program of its stages along (`__lyra_stage__`), and each run of it is a process of its
own. An `OutsideAgent` represents one that another program runs: the server above makes one for each agent that a worker
serves, and `OutsideStages` ties it to the door: a stage counts as begun when a worker gets it (`StageRun.begin`), and
after a restart the worker may still deliver what it had got before. `pipeline_of` and `agent_run` are the pipeline of
one stage behind `execute_agent`. This module knows no routes: `runner` runs a stage, `moves` continues from its result.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from lyra.core import codec
from lyra.core.checking.check import did_you_mean, short_text
from lyra.core.envelope import Envelope, TerminalReason
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import AgentFailed, ConfigError, NoSuchAgent
from lyra.kernel.base.acting import acting
from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.pipelines.declaration import AgentConfig
from lyra.kernel.pipelines.instruction import check_question, metrics_data
from lyra.kernel.pipelines.routing import OutputMode

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.base.tasks import BlockingCalls
    from lyra.kernel.pipelines.runner import Runner
    from lyra.kernel.pipelines.session import Session
    from lyra.kernel.process.process import Process


_log: Final = logging.getLogger("lyra.kernel")
_STAGE: Final = "stage"  # a parameter of this name is given the stage


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an agent function, instead of a plain mapping."""

    output: dict[str, Any] = {}
    success: bool = True
    error: str | None = None
    metrics: dict[str, Any] = {}
    break_loop: bool = False
    interrupt: dict[str, Any] | None = None


class RegisteredAgent(msgspec.Struct, frozen=True):
    """An agent as it was registered: a function (`call`), or a `program` whose processes run its stages."""

    call: Callable[..., Any] | None
    idempotent: bool
    owner: str = ""  # the pid of the process that registered it, if one did
    program: Callable[..., Any] | None = None
    budget: Any = None  # of each process of the program
    blocks: bool = False  # the function is not async: it runs in a thread
    outside: Any = None  # an OutsideAgent: another program runs its stages
    takes_stage: str = ""  # how the function takes the stage's settings: "keyword", "second" or not at all
    declaration: Any = None  # the Agent behind the program, for the layers above

    async def run(self, envelope: Envelope, stage: AgentConfig, threads: BlockingCalls) -> Any:
        """Return what the function gives for this envelope; what it gives to be awaited is awaited here."""
        assert self.call is not None
        args: tuple[Any, ...] = (envelope, stage) if self.takes_stage == "second" else (envelope,)
        options = {_STAGE: stage} if self.takes_stage == "keyword" else {}
        if self.blocks:
            value = await threads.call(self.call, *args, **options)
        else:
            value = self.call(*args, **options)
        return await value if hasattr(value, "__await__") else value


class Agents:
    """Agents by name."""

    def __init__(self, core: Core[Process], register_program: Callable[[Any], str]) -> None:
        self._core = core
        self._register_program = register_program
        self._by_name: dict[str, RegisteredAgent] = {}
        self._waiters: dict[str, list[Any]] = {}

    def register(
        self,
        name: str,
        agent: Any,
        *,
        idempotent: bool = False,
        prompts: Mapping[str, Any] | None = None,
        models: Mapping[str, Any] | None = None,
    ) -> None:
        """Register an agent: a function of the envelope, an object with such a `run`, or an Agent. `prompts` by
        prompt_key and `models` by model_role are for an Agent."""
        short_text(name, "an agent's name", most=NAME_LENGTH_MAX)
        if not name:
            raise ConfigError("an agent needs a name", key="name")
        maker = acting()
        owner = maker.pid if maker is not None and maker.core is self._core else ""
        make_program = getattr(agent, "__lyra_stage__", None)
        if make_program is not None:
            program = make_program(name, prompts=prompts, models=models)
            self._register_program(program)
            budget = getattr(agent, "budget", None)
            registered = RegisteredAgent(None, idempotent, owner, program, budget, declaration=agent)
        elif getattr(agent, "__lyra_outside__", False):
            registered = RegisteredAgent(None, idempotent, owner, outside=agent)
        elif prompts is not None or models is not None:
            raise ConfigError("prompts and models are for an Agent; a function reads the stage's settings itself")
        else:
            registered = _function(name, agent, idempotent, owner)
        self._by_name[name] = registered
        self.wake(name)
        if self._core.remote is not None:
            self._core.remote.agents.tell(name)

    def wake(self, name: str) -> None:
        """Wake the stages that wait for an agent: it was registered here, or on another shard."""
        for waker in self._waiters.pop(name, []):
            resume(waker)

    def unregister(self, name: str) -> bool:
        was_known = self._by_name.pop(name, None) is not None
        if self._core.remote is not None:
            self._core.remote.agents.tell(name)
        return was_known

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def is_offered(self, name: str, user_id: str) -> bool:
        """Return whether the agent is here for the work of this user ("" is no user): another program may run it for
        one user alone."""
        agent = self._by_name.get(name)
        if agent is None:
            return self.is_abroad(name)
        return agent.outside is None or bool(agent.outside.serves(user_id))

    def is_abroad(self, name: str) -> bool:
        """Return whether other shards of the cluster alone have an agent."""
        remote = self._core.remote
        return remote is not None and name not in self._by_name and bool(remote.agents.list_places(name))

    def check(self, names: Iterable[str], user_id: str = "") -> None:
        """Refuse a pipeline of a user whose agents are not all here for that user."""
        missing = [name for name in names if not self.is_offered(name, user_id)]
        if missing:
            hint = self._hint(missing[0], user_id)
            raise ConfigError(f"no agent is registered as {missing[0]!r}", hint=hint, key=missing[0], missing=missing)

    def must_exist(self, name: Any, user_id: str = "") -> None:
        if not isinstance(name, str) or not self.is_offered(name, user_id):
            hint = self._hint(str(name), user_id)
            raise NoSuchAgent(f"no agent is registered as {name!r}", hint=hint, name=str(name))

    def _hint(self, name: str, user_id: str) -> str:
        near = did_you_mean(name, [known for known in self._by_name if self.is_offered(known, user_id)])
        return f"did you mean {near!r}?" if near else "kernel.register_agent(name, fn) makes one known"

    def find(self, name: str) -> RegisteredAgent | None:
        return self._by_name.get(name)

    def get(self, name: str) -> RegisteredAgent:
        if name not in self._by_name:
            self.check([name])
        return self._by_name[name]

    async def wait_for(self, process: Process, name: str, *, may_be_abroad: bool = False) -> RegisteredAgent | None:
        """Return the agent, as soon as it is registered; None where it may be abroad and other shards alone have it.
        Not journaled."""
        while name not in self._by_name and not (may_be_abroad and self.is_abroad(name)):
            self._core.publish(process.pid, "process.dormant", {"agent": name})
            _log.warning("pipeline %s waits for its agent %s to be registered", process.pid, name)
            await suspend(process, self._waiters.setdefault(name, []))
        return self._by_name.get(name)


def _function(name: str, agent: Any, idempotent: bool, owner: str) -> RegisteredAgent:
    call = agent if callable(agent) and not isinstance(agent, type) else getattr(agent, "run", None)
    if not callable(call):
        raise ConfigError(f"an agent is an async function of the envelope, or an Agent, not {agent!r}", key=name)
    return RegisteredAgent(call, idempotent, owner, blocks=_blocks(call), takes_stage=_takes_stage(call))


def _blocks(call: Callable[..., Any]) -> bool:
    """Return whether a call is not async: neither a coroutine function nor an object whose `__call__` is one."""
    inner: Any = call
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    is_async = asyncio.iscoroutinefunction
    return not (is_async(inner) or is_async(getattr(type(inner), "__call__", None)))  # noqa: B004 (of its class)


def _takes_stage(call: Callable[..., Any]) -> str:
    """Return how a function takes the stage's settings: by the name `stage`, or as a second argument without a
    default."""
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return ""
    named = parameters.get(_STAGE)
    if named is not None and named.kind in (named.POSITIONAL_OR_KEYWORD, named.KEYWORD_ONLY):
        return "keyword"
    required = [
        parameter
        for parameter in parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return "second" if len(required) == 2 else ""


def _to_plain_mapping(value: Any) -> Any:
    """Return the output of an agent with an `output` type (a dataclass, a Struct, a pydantic model) as a mapping."""
    return None if type(value) in codec.UNCHANGED else codec.decode(codec.encode(value))


def result_data(stage: AgentConfig, value: Any) -> dict[str, Any]:
    """Return an agent's result as a report; a result with an error is raised, so that it is retried like an
    exception."""
    data: dict[str, Any] = {"output": {}, "metrics": {}}
    if isinstance(value, AgentResult):
        if not value.success or value.error:
            raise AgentFailed(value.error or f"{stage.agent_name} failed")
        metrics_data(value.metrics)  # raises for wrong metrics, which fails the stage
        data = {"output": value.output, "metrics": dict(value.metrics)}
        if value.break_loop:
            data["break_loop"] = True
        if value.interrupt:
            data["interrupt"] = check_question(value.interrupt)  # raises for an unknown kind, which fails the stage
    elif isinstance(value, Mapping):
        data["output"] = dict(value)
    elif isinstance(value, str) and stage.output_mode is OutputMode.TEXT:
        data["output"] = {"text": value}
    elif value is not None and isinstance(plain := _to_plain_mapping(value), dict):
        data["output"] = plain
    elif value is not None:
        raise AgentFailed(
            f"{stage.agent_name} gave {type(value).__name__}, not a mapping", hint="return a dict or an AgentResult"
        )
    wrong = stage.wrong_with(data["output"])
    if wrong is not None:
        raise AgentFailed(f"the output of {stage.agent_name} {wrong}")
    return data


# Stages whose agent runs in another program: what that program's side is given, and how it is told of a call's end.


async def _skip_begin(may_repeat: bool) -> None:
    """Do nothing: the work was begun before."""


class StageRun(msgspec.Struct, kw_only=True):
    """One run of a stage: `key` is the same in every lifetime of the kernel, and no other run's."""

    key: str
    pid: str
    agent_name: str
    envelope: Envelope
    stage: Any  # an AgentConfig
    may_repeat: bool  # the stage may be run again, whatever its agent says
    # Awaited right before a worker gets the work, with whether another may be given it if this one is lost.
    begin: Callable[[bool], Awaitable[None]] = _skip_begin


class OutsideAgent(Protocol):
    """An agent in another program. `agents.register` knows it by `__lyra_outside__`."""

    __lyra_outside__: bool

    def serves(self, user_id: str) -> bool:
        """Return whether that program runs it for this user; "" is no user."""

    async def run(self, work: StageRun) -> Any: ...

    async def find_out(self, work: StageRun) -> Any: ...

    def on_asked(self, interrupt_id: str, key: str) -> None: ...

    def on_settled(self, key: str, *, is_durable: bool) -> None: ...


class OutsideStages:
    """The runs of an agent that another program performs, as the door calls them (`PerformedOutside`)."""

    def __init__(self, runner: Runner, agent: OutsideAgent) -> None:
        self._runner = runner
        self._agent = agent

    async def run(
        self,
        pid: str,
        run: int,
        stage_name: str,
        *_asked: str,
        begin: Callable[[bool], Awaitable[None]],
        idempotency_key: str,
    ) -> Any:
        """Return the function of the effect."""
        return await self._perform(pid, run, stage_name, idempotency_key, self._agent.run, begin)

    async def find_out(self, *call: Any, may_repeat: bool, idempotency_key: str) -> Any:
        pid, run, stage_name = call[:3]
        return await self._perform(pid, run, stage_name, idempotency_key, self._agent.find_out, may_repeat=may_repeat)

    def on_asked(self, interrupt_id: str, *call: Any, idempotency_key: str) -> None:
        self._agent.on_asked(interrupt_id, self._runner.run_key(call[0], call[1], idempotency_key))

    def on_settled(self, is_durable: bool, /, *call: Any, idempotency_key: str) -> None:
        self._agent.on_settled(self._runner.run_key(call[0], call[1], idempotency_key), is_durable=is_durable)

    async def _perform(
        self,
        pid: str,
        run: int,
        stage_name: str,
        idempotency_key: str,
        call: Callable[[StageRun], Awaitable[Any]],
        begin: Callable[[bool], Awaitable[None]] = _skip_begin,
        *,
        may_repeat: bool = False,
    ) -> Any:
        key = self._runner.run_key(pid, run, idempotency_key)

        def work(envelope: Envelope, stage: AgentConfig) -> Awaitable[Any]:
            return call(
                StageRun(
                    key=key,
                    pid=pid,
                    agent_name=stage.agent_name,
                    envelope=envelope,
                    stage=stage,
                    may_repeat=may_repeat or stage.retry is not None,
                    begin=begin,
                )
            )

        return await self._runner.perform(pid, run, stage_name, work)


def make_skipped_result(data: Any) -> dict[str, Any]:
    """Return the result of a run that a person skipped: the answer's data is the output, unless it is a whole
    result."""
    if isinstance(data, dict) and isinstance(data.get("output"), dict) and set(data) <= {"output", "metrics"}:
        return {"metrics": {}, **data}
    return {"output": data if isinstance(data, dict) else {} if data is None else {"text": str(data)}, "metrics": {}}


# Its bounds are those of the envelope; the envelope of the result is the caller's, with what the run added.

# Keys of a stage that mean other stages: there are none.
_OF_A_PIPELINE: Final = frozenset(
    {"name", "agent", "node_kind", "stage_order", "requires", "after", "join_strategy", "branches"}
    | {"routing_rules", "routing", "default_next", "error_next", "max_visits"}
)
_BOUNDS: Final = ("max_iterations", "max_llm_calls", "max_agent_hops", "max_input_tokens", "max_output_tokens")
# Fields of an envelope that a run changes.
_CHANGED: Final = (
    "outputs",
    "metadata",
    "completed_stage_set",
    "failed_stages",
    "llm_call_count",
    "tool_call_count",
    "agent_hop_count",
    "tokens_in",
    "tokens_out",
    "processing_history",
    "errors",
    "interrupt",
)


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one run of an agent. `error_code` is a code of Lyra's errors, or the reason why the run was not
    made; both are empty where it went well."""

    success: bool
    output: dict[str, Any]
    error: str = ""
    error_code: str = ""
    duration_ms: int = 0
    llm_calls: int = 0
    tool_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    pid: str = ""
    envelope: Envelope

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return data


def pipeline_of(name: str, config: Any, envelope: Envelope) -> dict[str, Any]:
    """Return the declaration of the pipeline that runs the agent alone, with the settings of a stage in `config`."""
    if isinstance(config, AgentConfig):
        config = {key: value for key, value in config.to_data().items() if value is not None}
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"the settings of an agent are a mapping, not {type(config).__name__}", key="config")
    stage = {key: value for key, value in (config or {}).items() if key not in _OF_A_PIPELINE}
    bounds = {bound: getattr(envelope, bound, None) for bound in _BOUNDS}
    return {
        "name": name,
        "agents": [{**stage, "name": name}],
        **{bound: max(1, most) for bound, most in bounds.items() if most is not None},
    }


def agent_run(name: str, before: Envelope, session: Session, failure: str) -> AgentRun:
    """Return the result of a session that has run one agent; `failure` is why its process ended early."""
    after, envelope = session.envelope, before.copy()
    ended = after.copy()
    for field in _CHANGED:
        setattr(envelope, field, getattr(ended, field))
    success = after.terminal_reason in (TerminalReason.COMPLETED, TerminalReason.BREAK_REQUESTED) and not failure
    records = after.processing_history[len(before.processing_history) :]
    return AgentRun(
        success=success,
        output=ended.outputs.get(name, {}) if success else {},
        error="" if success else failure or after.failed_stages.get(name) or after.termination_reason,
        error_code="" if success else session.error_code or str(after.terminal_reason or "process_exit"),
        duration_ms=sum(record.duration_ms for record in records),
        llm_calls=after.llm_call_count - before.llm_call_count,
        tool_calls=after.tool_call_count - before.tool_call_count,
        tokens_in=after.tokens_in - before.tokens_in,
        tokens_out=after.tokens_out - before.tokens_out,
        pid=session.process_id,
        envelope=envelope,
    )
