"""An Envelope: a piece of work in flight through a pipeline.

Owns everything that travels with the work: the user, the input, the output of each stage, the current stage,
the counters and their bounds, the remaining goals, and the end; plus a trust label and trace ids.
It keeps its own records (`start_stage`, `complete_stage`, `fail_stage`, `advance_goals`) and answers whether
it may continue (`check_bounds`); the orchestrator chooses the next stage. A bound is reached at
`>=`, unlike a quota, which is exceeded at `>`. Lists and mappings are replaced, not changed in place, so that a
`snapshot` is cheap.

Times are wall-clock seconds and come in as `now`; ids come from an Entropy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import msgspec

from lyra.core.checking.check import check_keys, is_nested_deeper
from lyra.core.limits import (
    ENVELOPE_AGENT_HOPS_MAX,
    ENVELOPE_ITERATIONS_MAX,
    ENVELOPE_LLM_CALLS_MAX,
    ENVELOPE_STAGES_MAX,
    VALUE_DEPTH_MAX,
)
from lyra.errors import ConfigError

# ---------------------------------------------------------------- open question
# The open question of an envelope: a mapping whose keys can also be read as attributes.


class _AttributeMapping(dict[str, Any]):
    """A mapping whose keys can be read as attributes; `FIELDS` are the names with a default."""

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in self.FIELDS:
            return self.FIELDS[name]
        raise AttributeError(f"a question has no {name!r}; it has {', '.join({**self.FIELDS, **self})}")


class _Response(_AttributeMapping):
    """The answer to a question."""

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Any]] = {"text": "", "approved": None, "decision": "", "data": None}


class OpenQuestion(_AttributeMapping):
    """A question that work waits for; `response` is set once it is answered."""

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Any]] = {
        "id": "",
        "kind": "",
        "question": "",
        "message": "",
        "data": None,
        "response": None,
    }

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        return _Response(value) if name == "response" and isinstance(value, Mapping) else value


if TYPE_CHECKING:
    from lyra.core.ids import Entropy

    _OpenQuestionData = OpenQuestion
else:
    _OpenQuestionData = dict[str, Any]  # data from a wire; __post_init__ makes an OpenQuestion of it


ANONYMOUS: Final = "anonymous"  # the user of an envelope that names none
_ID_LENGTH: Final = 16


class _Word(StrEnum):
    """Lower-case words that may also be written in capitals."""

    @classmethod
    def _missing_(cls, value: object) -> _Word | None:
        return cls._value2member_map_.get(value.lower()) if isinstance(value, str) else None  # type: ignore[return-value]


class TerminalReason(_Word):
    COMPLETED = "completed"
    MAX_ITERATIONS_EXCEEDED = "max_iterations_exceeded"
    MAX_LLM_CALLS_EXCEEDED = "max_llm_calls_exceeded"
    MAX_AGENT_HOPS_EXCEEDED = "max_agent_hops_exceeded"
    MAX_INPUT_TOKENS_EXCEEDED = "max_input_tokens_exceeded"
    MAX_OUTPUT_TOKENS_EXCEEDED = "max_output_tokens_exceeded"
    MAX_LOOP_EXCEEDED = "max_loop_exceeded"
    MAX_STAGE_VISITS_EXCEEDED = "max_stage_visits_exceeded"
    EDGE_LIMIT_EXCEEDED = "edge_limit_exceeded"
    BREAK_REQUESTED = "break_requested"
    USER_CANCELLED = "user_cancelled"
    TOOL_FAILED_FATALLY = "tool_failed_fatally"
    LLM_FAILED_FATALLY = "llm_failed_fatally"
    POLICY_VIOLATION = "policy_violation"

    def outcome(self) -> str:
        """`completed`, `bounds_exceeded` or `failed`."""
        return _OUTCOMES.get(self, "bounds_exceeded" if self.value.endswith("_exceeded") else "failed")


_OUTCOMES: Final = {TerminalReason.COMPLETED: "completed", TerminalReason.BREAK_REQUESTED: "completed"}


class StageStatus(_Word):
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"


class Trust(_Word):
    """Where the work's text came from: untrusted text may carry instructions of a third party."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"


class StageRecord(msgspec.Struct, frozen=True):
    """One run of one agent, from start to end."""

    agent: str
    stage_order: int = 0
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: int = 0
    status: StageStatus = StageStatus.RUNNING
    error: str | None = None
    llm_calls: int = 0


class BoundsResult(NamedTuple):
    """Whether the work may continue, why not, and what is left (never below 0; None without a bound)."""

    can_continue: bool
    terminal_reason: TerminalReason | None
    llm_calls_remaining: int
    agent_hops_remaining: int
    iterations_remaining: int
    tokens_in_remaining: int | None = None
    tokens_out_remaining: int | None = None


class Envelope(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A piece of work. Made with `Envelope.create`; a plain constructor call must give its ids."""

    # identity
    envelope_id: str
    request_id: str
    session_id: str
    user_id: str = ANONYMOUS
    trace_id: str = ""
    span_id: str = ""
    trust: Trust = Trust.TRUSTED
    # input
    raw_input: str = ""
    received_at: float | None = None
    outputs: dict[str, dict[str, Any]] = {}
    metadata: dict[str, Any] = {}
    # stages
    current_stage: str = "start"
    stage_order: list[str] = []
    iteration: int = 0
    max_iterations: int = ENVELOPE_ITERATIONS_MAX
    active_stages: dict[str, bool] = {}
    completed_stage_set: dict[str, bool] = {}
    failed_stages: dict[str, str] = {}
    parallel_mode: bool = False
    # limits
    llm_call_count: int = 0
    max_llm_calls: int = ENVELOPE_LLM_CALLS_MAX
    tool_call_count: int = 0
    agent_hop_count: int = 0
    max_agent_hops: int = ENVELOPE_AGENT_HOPS_MAX
    tokens_in: int = 0
    max_input_tokens: int | None = None  # None: no bound
    tokens_out: int = 0
    max_output_tokens: int | None = None
    # end
    terminated: bool = False
    terminal_reason: TerminalReason | None = None
    termination_reason: str = ""
    # interrupt
    interrupt_pending: bool = False
    interrupt: _OpenQuestionData | None = None
    # progress
    completed_stages: list[dict[str, Any]] = []
    current_stage_number: int = 1
    max_stages: int = ENVELOPE_STAGES_MAX
    all_goals: list[str] = []
    remaining_goals: list[str] = []
    goal_completion_status: dict[str, str] = {}
    prior_plans: list[dict[str, Any]] = []
    loop_feedback: list[str] = []
    # history
    processing_history: list[StageRecord] = []
    errors: list[dict[str, Any]] = []
    created_at: float | None = None
    completed_at: float | None = None

    def __post_init__(self) -> None:
        if self.interrupt is not None:
            self.interrupt = OpenQuestion(self.interrupt)

    # ------------------------------------------------------------ making one
    @classmethod
    def create(cls, entropy: Entropy, *, now: float, **fields: Any) -> Self:
        """Return a new envelope; ids that are not given are drawn, times that are not given are `now`."""
        drawn: dict[str, Any] = {
            name: prefix + entropy.text(_ID_LENGTH)
            for name, prefix in (("envelope_id", "env_"), ("request_id", "req_"), ("session_id", "sess_"))
            if not fields.get(name)
        }
        if not fields:
            return cls(received_at=now, created_at=now, **drawn)
        return cls.from_data({"received_at": now, "created_at": now, **fields, **drawn})

    def clone(self, new_id: str | None = None) -> Self:
        """Return a deep copy, under `new_id` or, as the same piece of work, under its own id."""
        data = self.to_data()
        if new_id:
            data["envelope_id"] = new_id
        return self.from_data(data)

    def copy(self) -> Self:
        """Return a deep copy of an envelope that holds plain data; for any other there is `clone`."""
        copied = self.snapshot()
        copied.stage_order = self.stage_order.copy()
        copied.active_stages = self.active_stages.copy()
        copied.completed_stage_set = self.completed_stage_set.copy()
        copied.failed_stages = self.failed_stages.copy()
        copied.processing_history = self.processing_history.copy()
        copied.all_goals = self.all_goals.copy()
        copied.remaining_goals = self.remaining_goals.copy()
        copied.goal_completion_status = self.goal_completion_status.copy()
        copied.loop_feedback = self.loop_feedback.copy()
        copied.outputs = _read(_write(self.outputs)) if self.outputs else {}
        copied.metadata = _read(_write(self.metadata)) if self.metadata else {}
        copied.interrupt = OpenQuestion(_read(_write(self.interrupt))) if self.interrupt is not None else None
        copied.errors = _read(_write(self.errors)) if self.errors else []
        copied.completed_stages = _read(_write(self.completed_stages)) if self.completed_stages else []
        copied.prior_plans = _read(_write(self.prior_plans)) if self.prior_plans else []
        return copied

    def snapshot(self) -> Self:
        """Return a shallow copy that later changes of this envelope do not reach. Read-only: it shares lists and
        mappings."""
        copied: Self = self.__copy__()  # type: ignore[attr-defined]  # every Struct has it; twice as fast as copy.copy
        return copied

    def to_data(self) -> dict[str, Any]:
        """Plain data, every field, nothing shared with this envelope."""
        data: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return data

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Read untrusted plain data; a value that does not fit is a ConfigError that names the field."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"an envelope is a mapping of fields, not {type(data).__name__}")
        check_keys(data, cls.__struct_fields__, "an envelope")
        # Refuse data that is nested too deeply, or contains itself, before anything recurses into it.
        if is_nested_deeper(data, VALUE_DEPTH_MAX):
            raise ConfigError(f"an envelope is nested more than {VALUE_DEPTH_MAX} levels deep")
        try:
            # A deep copy of the containers, with enum words in lower case.
            copied: dict[str, Any] = {str(key): _copy(value) for key, value in data.items()}
            for name in ("terminal_reason", "trust"):
                if isinstance(copied.get(name), str):
                    copied[name] = copied[name].lower()
            return msgspec.convert(copied, cls)
        except (msgspec.ValidationError, RecursionError) as error:
            text, _, field = str(error).partition(" - at `$")
            field = field.strip(".`") or "envelope"
            raise ConfigError(f"an envelope's {field} cannot be used: {text}", key=field) from None

    # ------------------------------------------------------------ bounds
    def find_reached_bound(self) -> TerminalReason | None:
        """Return the first bound that is reached, if one is."""
        if self.iteration >= self.max_iterations:
            return TerminalReason.MAX_ITERATIONS_EXCEEDED
        if self.llm_call_count >= self.max_llm_calls:
            return TerminalReason.MAX_LLM_CALLS_EXCEEDED
        if self.agent_hop_count >= self.max_agent_hops:
            return TerminalReason.MAX_AGENT_HOPS_EXCEEDED
        if self.max_input_tokens is not None and self.tokens_in >= self.max_input_tokens:
            return TerminalReason.MAX_INPUT_TOKENS_EXCEEDED
        if self.max_output_tokens is not None and self.tokens_out >= self.max_output_tokens:
            return TerminalReason.MAX_OUTPUT_TOKENS_EXCEEDED
        return None

    def check_bounds(self) -> BoundsResult:
        """Tell whether the work may continue; bounds are checked in the order iteration, model calls, hops, tokens."""
        reason = self.terminal_reason if self.terminated else self.find_reached_bound()
        return BoundsResult(
            can_continue=reason is None and not self.terminated and not self.interrupt_pending,
            terminal_reason=reason,
            llm_calls_remaining=max(self.max_llm_calls - self.llm_call_count, 0),
            agent_hops_remaining=max(self.max_agent_hops - self.agent_hop_count, 0),
            iterations_remaining=max(self.max_iterations - self.iteration, 0),
            tokens_in_remaining=_subtract_used(self.max_input_tokens, self.tokens_in),
            tokens_out_remaining=_subtract_used(self.max_output_tokens, self.tokens_out),
        )

    def terminate(self, reason: TerminalReason | str, *, now: float, message: str = "") -> None:
        """End the work, once: a second reason changes nothing."""
        if self.terminated:
            return
        try:
            self.terminal_reason = TerminalReason(reason)
        except ValueError:
            raise ConfigError(f"there is no terminal reason {reason!r}", key="terminal_reason") from None
        self.terminated = True
        self.termination_reason = message or self.terminal_reason.value
        self.completed_at = now

    # ------------------------------------------------------------ records of stages
    def start_stage(self, stage: str, *, now: float, agent: str | None = None) -> StageRecord:
        """Note that an agent starts on a stage: one hop, one record."""
        order = self.stage_order.index(stage) + 1 if stage in self.stage_order else 0
        record = StageRecord(agent=agent or stage, stage_order=order, started_at=now)
        self.processing_history = [*self.processing_history, record]
        self.active_stages = {**self.active_stages, stage: True}
        self.failed_stages = _without(self.failed_stages, stage)
        self.agent_hop_count += 1
        return record

    def complete_stage(
        self,
        stage: str,
        output: Mapping[str, Any] | None = None,
        *,
        now: float,
        agent: str | None = None,
        llm_calls: int = 0,
        duration_ms: int = 0,
        names: Iterable[str] = (),
    ) -> None:
        """Note that the stage went well; its output is kept under its name and its agent's, or under `names`. It took
        `duration_ms`, or where that is 0, the time since its start."""
        self._end_stage(agent or stage, StageStatus.SUCCESS, now, llm_calls=llm_calls, duration_ms=duration_ms)
        self.active_stages = _without(self.active_stages, stage)
        self.completed_stage_set = {**self.completed_stage_set, stage: True}
        kept = dict(output or {})
        self.outputs = {**self.outputs, **dict.fromkeys(names or (stage, agent or stage), kept)}

    def fail_stage(
        self,
        stage: str,
        error: str,
        *,
        now: float,
        agent: str | None = None,
        llm_calls: int = 0,
        duration_ms: int = 0,
    ) -> None:
        """Note that the stage went wrong; the work itself continues or ends as the orchestrator decides. It took
        `duration_ms`, or where that is 0, the time since its start."""
        self._end_stage(
            agent or stage, StageStatus.ERROR, now, llm_calls=llm_calls, duration_ms=duration_ms, error=error
        )
        self.active_stages = _without(self.active_stages, stage)
        self.failed_stages = {**self.failed_stages, stage: error}
        self.errors = [*self.errors, {"stage": stage, "agent": agent or stage, "error": error, "at": now}]

    def skip_stage(self, stage: str, *, now: float, agent: str | None = None) -> None:
        """End a run whose result is no longer needed."""
        self.active_stages = _without(self.active_stages, stage)
        self._end_record(agent or stage, StageStatus.SKIPPED, now)

    def advance_goals(self, satisfied: Mapping[str, str] | list[str]) -> bool:
        """Remove satisfied goals and go to the next stage number; False when no goal or no stage is left."""
        status = dict(satisfied) if isinstance(satisfied, Mapping) else dict.fromkeys(satisfied, "satisfied")
        self.goal_completion_status = {**self.goal_completion_status, **status}
        done = {goal for goal, word in status.items() if word == "satisfied"}
        entry = {"stage_number": self.current_stage_number, "satisfied_goals": sorted(done)}
        self.completed_stages = [*self.completed_stages, entry]
        self.remaining_goals = [goal for goal in self.remaining_goals if goal not in done]
        if not self.remaining_goals or self.current_stage_number >= self.max_stages:
            return False
        self.current_stage_number += 1
        return True

    def _end_stage(
        self,
        agent: str,
        status: StageStatus,
        now: float,
        *,
        llm_calls: int,
        duration_ms: int,
        error: str | None = None,
    ) -> None:
        self.llm_call_count += llm_calls
        self._end_record(agent, status, now, llm_calls=llm_calls, duration_ms=duration_ms, error=error)

    def _end_record(
        self,
        agent: str,
        status: StageStatus,
        now: float,
        *,
        llm_calls: int = 0,
        duration_ms: int = 0,
        error: str | None = None,
    ) -> None:
        history = self.processing_history.copy()
        for place in range(len(history) - 1, -1, -1):
            record = history[place]
            if record.agent == agent and record.status is StageStatus.RUNNING:
                began = record.started_at
                took_ms = duration_ms or max(round((now - (began or now)) * 1000), 0)
                history[place] = StageRecord(agent, record.stage_order, began, now, took_ms, status, error, llm_calls)
                self.processing_history = history
                return


def _subtract_used(most: int | None, used: int) -> int | None:
    return None if most is None else max(most - used, 0)


def _without(book: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in book.items() if name != key} if key in book else book


# A deep copy by encoding to bytes: many times as fast as a recursive copy.
_write: Final = msgspec.msgpack.Encoder().encode
_read: Final = msgspec.msgpack.Decoder().decode


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    if isinstance(value, StageRecord):
        return msgspec.to_builtins(value)
    return value
