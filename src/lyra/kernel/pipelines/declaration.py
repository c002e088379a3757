"""The declaration of a pipeline: stages, their routes and their bounds. Checked as a whole before anything runs.

    PipelineConfig.of({"name": "review", "agents": [{"name": "draft", "default_next": "check"}, {"name": "check"}]})

This module has the typed objects; the tables of `routing` explain each key, and `check` finds mistakes. It runs nothing
and routes nothing: `routing` decides, `moves` changes a session, `orchestrator` keeps sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Self

import msgspec

from lyra.core import codec
from lyra.core.checking.schema import mismatch
from lyra.core.limits import (
    ENVELOPE_AGENT_HOPS_MAX,
    ENVELOPE_ITERATIONS_MAX,
    ENVELOPE_LLM_CALLS_MAX,
    PIPELINE_STAGE_TIMEOUT_S,
    PIPELINE_STEPS_MAX,
)
from lyra.core.policies.retry import ERROR_CLASSES, Backoff, Retry
from lyra.errors import ConfigError
from lyra.kernel.pipelines.check import path_text, problems
from lyra.kernel.pipelines.routing import (
    EDGE_ALIASES,
    WORDS,
    ContextOverflow,
    JoinStrategy,
    MergeStrategy,
    NodeKind,
    OutputMode,
    RunMode,
    TokenStream,
    ToolAccess,
    normal_expression,
    resolve_aliases,
)


class RoutingRule(msgspec.Struct, frozen=True):
    target: str
    condition: str | None = None
    value: Any = None
    expr: dict[str, Any] | None = None


class EdgeLimit(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    source: str
    target: str
    max_count: int


class RetryPolicy(msgspec.Struct, frozen=True):
    max_retries: int = 0
    initial_ms: float = 1_000.0
    max_ms: float = 30_000.0
    multiplier: float = 2.0


class Generation(msgspec.Struct, frozen=True):
    """Sampling settings of a model; None leaves a setting to the model."""

    stop: tuple[str, ...] = ()
    repeat_penalty: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One stage; see STAGE_KEYS."""

    name: str
    agent: str = ""
    node_kind: NodeKind = NodeKind.AGENT
    stage_order: int = 0
    requires: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    join_strategy: JoinStrategy = JoinStrategy.ALL
    branches: tuple[str, ...] = ()
    has_llm: bool = False
    has_tools: bool = False
    has_policies: bool = False
    tool_access: ToolAccess | None = None
    allowed_tools: tuple[str, ...] = ()
    model_role: str = ""
    prompt_key: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    generation: Generation | None = None
    max_context_tokens: int | None = None
    context_overflow: ContextOverflow = ContextOverflow.FAIL
    output_mode: OutputMode = OutputMode.STRUCTURED
    token_stream: TokenStream = TokenStream.OFF
    streaming_prompt_key: str = ""
    output_key: str = ""
    required_output_fields: tuple[str, ...] = ()
    output_schema: dict[str, Any] | None = None
    routing_rules: tuple[RoutingRule, ...] = ()
    default_next: str = ""
    error_next: str = ""
    timeout_seconds: float | None = None
    max_retries: int = 0
    retry_policy: RetryPolicy | None = None
    max_visits: int | None = None
    idempotent: bool = False

    @cached_property
    def agent_name(self) -> str:
        return self.agent or self.name

    @cached_property
    def retry(self) -> Retry | None:
        """The retry policy for the kernel's door; None: the stage is run once."""
        policy = self.retry_policy or RetryPolicy()
        retries = max(self.max_retries, policy.max_retries)
        if not retries:
            return None
        backoff = Backoff(initial_s=policy.initial_ms / 1000, factor=policy.multiplier, max_s=policy.max_ms / 1000)
        return Retry(max_attempts=retries + 1, backoff=backoff, on=_RETRIED)

    def wrong_with(self, output: Mapping[str, Any]) -> str | None:
        """Return why an output does not fit this stage's declaration; None if it does."""
        missing = [name for name in self.required_output_fields if name not in output]
        if missing:
            return f"has no {', '.join(missing)}"
        wrong = mismatch(output, self.output_schema) if self.output_schema is not None else None
        return f"does not fit its schema: {wrong}" if wrong is not None else None

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


# A stage with retries is retried after any failure but a refusal, which would be the same again.
_RETRIED: Final = tuple(word for word in ERROR_CLASSES if word not in ("authentication", "budget_exceeded"))


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A checked pipeline; see PIPELINE_KEYS. Made with `PipelineConfig.of`, which checks each object once."""

    name: str
    agents: tuple[AgentConfig, ...]
    default_run_mode: RunMode = RunMode.SEQUENTIAL
    max_iterations: int = ENVELOPE_ITERATIONS_MAX
    max_llm_calls: int = ENVELOPE_LLM_CALLS_MAX
    max_agent_hops: int = ENVELOPE_AGENT_HOPS_MAX
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    default_timeout_seconds: float = PIPELINE_STAGE_TIMEOUT_S
    edge_limits: tuple[EdgeLimit, ...] = ()
    clarification_resume_stage: str = ""
    confirmation_resume_stage: str = ""
    agent_review_resume_stage: str = ""
    state_schema: dict[str, MergeStrategy] = {}
    step_limit: int = PIPELINE_STEPS_MAX

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return a PipelineConfig or a mapping of PIPELINE_KEYS; the first mistake is a ConfigError, the others its
        `also`."""
        if isinstance(value, cls) and value.__dict__.get("checked"):
            return value
        data = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        mistakes = list(problems(data))
        if mistakes:
            first, *others = mistakes
            also = [f"{path_text(problem.path)}: {problem.message}" for problem in others]
            raise ConfigError(
                f"pipeline {path_text(first.path)}: {first.message}" if first.path else first.message,
                hint=first.hint,
                key=path_text(first.path),
                also=also,
            )
        return cls.from_checked(codec.decode(codec.encode(data)))

    @classmethod
    def from_checked(cls, data: Mapping[str, Any]) -> Self:
        """Return the object of a declaration without problems."""
        plain = resolve_aliases(data)
        stages = [_stage(agent) for agent in plain["agents"]]
        plain["agents"] = sorted(stages, key=lambda stage: stage.get("stage_order", 0))
        plain["state_schema"] = _state_schema(plain.get("state_schema") or {})
        plain["edge_limits"] = _edges(plain.get("edge_limits") or ())
        if isinstance(plain.get("default_run_mode"), str):
            plain["default_run_mode"] = plain["default_run_mode"].lower()
        given = {key: value for key, value in plain.items() if value is not None}
        config = msgspec.convert(given, cls, strict=False)  # 3.0 is a whole number
        config.__dict__["checked"] = True  # marks this frozen object; one made by its constructor is not marked
        return config

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def means_the_same(self, other: PipelineConfig) -> bool:
        """Return whether two declarations are equal. Earlier versions kept `none` for a tool_access that was not
        written."""
        return self == other or self._with_tool_access() == other._with_tool_access()

    def _with_tool_access(self) -> PipelineConfig:
        agents = tuple(
            msgspec.structs.replace(stage, tool_access=stage.tool_access or ToolAccess.NONE) for stage in self.agents
        )
        return msgspec.structs.replace(self, agents=agents)

    def stage(self, name: str) -> AgentConfig | None:
        return self.by_name.get(name)

    @cached_property
    def by_name(self) -> dict[str, AgentConfig]:
        return {stage.name: stage for stage in self.agents}

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each stage in the order."""
        return {stage.name: place for place, stage in enumerate(self.agents)}

    @cached_property
    def most_taken(self) -> dict[tuple[str, str], int]:
        """The limit of each limited edge; the first, where it has two."""
        return {(limit.source, limit.target): limit.max_count for limit in reversed(self.edge_limits)}

    @cached_property
    def output_names(self) -> dict[str, tuple[str, ...]]:
        """The names of each stage's output: the stage's name first, then its agent's, unless that is the name of
        another stage, and its output_key."""
        return {
            stage.name: tuple(
                dict.fromkeys(
                    name
                    for name in (stage.name, stage.agent_name, stage.output_key)
                    if name and (name == stage.name or name not in self.by_name)
                )
            )
            for stage in self.agents
        }

    @property
    def stage_order(self) -> list[str]:
        return list(self.places)


def _stage(data: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in resolve_aliases(data).items() if value is not None}
    for key in WORDS:
        if key in plain:
            plain[key] = plain[key].lower()
    plain["routing_rules"] = [_rule(rule) for rule in plain.get("routing_rules", ())]
    for key in ("retry_policy", "generation"):
        if key in plain:
            plain[key] = {name: value for name, value in plain[key].items() if value is not None}
    return plain


def _rule(data: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in data.items() if value is not None}
    if "expr" in plain:
        plain["expr"] = normal_expression(plain["expr"])
    return plain


def _state_schema(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {key: word.lower() for key, word in value.items()}
    return {entry["key"]: (entry.get("merge") or "replace").lower() for entry in value}


def _edges(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, Mapping):
        ends = [(key.partition("->"), most) for key, most in value.items()]
        return [{"from": source.strip(), "to": target.strip(), "max_count": most} for (source, _, target), most in ends]
    return [{EDGE_ALIASES.get(key, key): part for key, part in limit.items()} for limit in value]
