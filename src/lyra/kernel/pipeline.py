"""What a pipeline declares: stages, where they lead, what bounds them. Checked as a whole before anything runs.

    PipelineConfig.of({"name": "review", "agents": [{"name": "draft", "default_next": "check"}, {"name": "check"}]})

`STAGE_KEYS` and `PIPELINE_KEYS` are the tables of every key: type, default and meaning. The reader, the published JSON
Schema (`json_schema`) and the reference are made from them, so a key cannot be known to one and not to another.
`problems` gives every mistake with its path, for a checker that knows the lines; `PipelineConfig.of` raises the first.
Runs nothing and routes nothing: `routing` decides, `pipeline_session` moves, `orchestrator` remembers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import msgspec

from lyra.core.check import did_you_mean
from lyra.core.limits import (
    ENVELOPE_AGENT_HOPS_MAX,
    ENVELOPE_ITERATIONS_MAX,
    ENVELOPE_LLM_CALLS_MAX,
    NAME_LENGTH_MAX,
    PIPELINE_STAGE_TIMEOUT_S,
    PIPELINE_STAGES_MAX,
    PIPELINE_STEPS_MAX,
    RETRY_ATTEMPTS_MAX,
)
from lyra.core.retry import ERROR_CLASSES, Backoff, Retry
from lyra.errors import ConfigError
from lyra.kernel.routing import OPS, SCOPES, Path, Problem, expression_problems, normal_expression

__all__ = [
    "PIPELINE_KEYS",
    "SPECIAL_TARGETS",
    "STAGE_KEYS",
    "AgentConfig",
    "EdgeLimit",
    "JoinStrategy",
    "Key",
    "MergeStrategy",
    "NodeKind",
    "PipelineConfig",
    "RetryPolicy",
    "RoutingRule",
    "RunMode",
    "ToolAccess",
    "json_schema",
    "problems",
]

SPECIAL_TARGETS: Final[dict[str, str]] = {
    "end": "the pipeline is complete",
    "clarification": "ask the user a question, then go on",
    "confirmation": "ask the user for consent, then go on",
}


class NodeKind(StrEnum):
    AGENT = "agent"
    GATE = "gate"
    FORK = "fork"


class RunMode(StrEnum):
    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"


class JoinStrategy(StrEnum):
    ALL = "all"
    ANY = "any"


class ToolAccess(StrEnum):
    NONE = "none"
    READ = "read"
    WRITE = "write"
    ALL = "all"


class MergeStrategy(StrEnum):
    REPLACE = "replace"
    APPEND = "append"
    MERGE_DICT = "merge_dict"


class Key(NamedTuple):
    """One key of a declaration. `least` is inclusive; `words` are the values of a word."""

    type: (
        str  # text | flag | count | seconds | number | names | word | rules | retry | mapping | state | edges | stages
    )
    default: Any
    meaning: str
    least: float = 0
    words: tuple[str, ...] = ()


STAGE_KEYS: Final[dict[str, Key]] = {
    "name": Key("text", None, "the stage's name, unique in its pipeline (required)"),
    "agent": Key("text", "", "the registered agent that runs it; by default the one of the stage's name"),
    "node_kind": Key("word", "agent", "agent runs, gate only routes, fork starts several branches", 0, tuple(NodeKind)),
    "stage_order": Key("count", 0, "its place among the stages; stages of the same number keep the order written"),
    "requires": Key("names", (), "parallel mode: stages whose output it needs (all or any, see join_strategy)"),
    "after": Key("names", (), "parallel mode: stages that must be over first, all of them"),
    "join_strategy": Key(
        "word",
        "all",
        "whether all of requires, or of a fork's branches, must be done, or any one",
        0,
        tuple(JoinStrategy),
    ),
    "branches": Key("names", (), "a fork's branches; targets of its rules that hold are branches too"),
    "has_llm": Key("flag", False, "it calls a model, and needs a model_role"),
    "has_tools": Key("flag", False, "it calls tools"),
    "has_policies": Key("flag", False, "it is subject to policies"),
    "tool_access": Key("word", "none", "what its tools may do", 0, tuple(ToolAccess)),
    "allowed_tools": Key("names", (), "the tools it may call"),
    "model_role": Key("text", "", "which model, by role"),
    "prompt_key": Key("text", "", "which prompt, by key"),
    "temperature": Key("number", None, "handed to the model"),
    "max_tokens": Key("count", None, "tokens one answer of the model may have", 1),
    "output_key": Key("text", "", "a second name for its output; by default only the agent's own"),
    "required_output_fields": Key("names", (), "keys its output must have; without one the stage failed"),
    "routing_rules": Key("rules", (), "where to go after it: the first rule that holds"),
    "default_next": Key("text", "", "where to go when no rule holds; nowhere means the end"),
    "error_next": Key("text", "", "where to go when it failed; nowhere ends the pipeline"),
    "timeout_seconds": Key("seconds", None, "seconds one run may take; by default default_timeout_seconds"),
    "max_retries": Key("count", 0, "runs after a failed first one"),
    "retry_policy": Key("retry", None, "max_retries, initial_ms, max_ms, multiplier: retries with these pauses"),
    "max_visits": Key("count", None, "times it may be entered; once more ends the pipeline", 1),
}

PIPELINE_KEYS: Final[dict[str, Key]] = {
    "name": Key("text", None, "the pipeline's name (required)"),
    "agents": Key("stages", None, "the stages (required); `stages` means the same"),
    "default_run_mode": Key(
        "word",
        "sequential",
        "follow the routes one by one, or run every stage whose requirements are met",
        0,
        tuple(RunMode),
    ),
    "max_iterations": Key("count", ENVELOPE_ITERATIONS_MAX, "loops back to an earlier stage before it stops", 1),
    "max_llm_calls": Key("count", ENVELOPE_LLM_CALLS_MAX, "model calls before it stops", 1),
    "max_agent_hops": Key("count", ENVELOPE_AGENT_HOPS_MAX, "stage runs before it stops", 1),
    "default_timeout_seconds": Key("seconds", PIPELINE_STAGE_TIMEOUT_S, "seconds one run of a stage may take"),
    "edge_limits": Key("edges", (), "how often one edge may be taken: from, to, max_count"),
    "clarification_resume_stage": Key("text", "", "where to go on after a clarification"),
    "confirmation_resume_stage": Key("text", "", "where to go on after a confirmation that was given"),
    "agent_review_resume_stage": Key("text", "", "where to go on after a review"),
    "state_schema": Key("state", {}, "keys of outputs gathered in the pipeline's state: replace, append or merge_dict"),
    "step_limit": Key("count", PIPELINE_STEPS_MAX, "gates and forks passed in a row", 1),
}
_ALIASES: Final = {
    "stages": "agents",
    "routing": "routing_rules",
    "run_mode": "default_run_mode",
    "edge_limit": "edge_limits",
}
_RULE_KEYS: Final = ("condition", "value", "expr", "target")
_EDGE_KEYS: Final = ("from", "to", "max_count")
_RETRY_KEYS: Final = ("max_retries", "initial_ms", "max_ms", "multiplier")


# ------------------------------------------------------------------ the typed objects
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


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
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
    tool_access: ToolAccess = ToolAccess.NONE
    allowed_tools: tuple[str, ...] = ()
    model_role: str = ""
    prompt_key: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    output_key: str = ""
    required_output_fields: tuple[str, ...] = ()
    routing_rules: tuple[RoutingRule, ...] = ()
    default_next: str = ""
    error_next: str = ""
    timeout_seconds: float | None = None
    max_retries: int = 0
    retry_policy: RetryPolicy | None = None
    max_visits: int | None = None

    @property
    def agent_name(self) -> str:
        return self.agent or self.name

    @property
    def retry(self) -> Retry | None:
        """The same as the kernel's door takes it: what is left out is one run and no other."""
        policy = self.retry_policy or RetryPolicy()
        retries = max(self.max_retries, policy.max_retries)
        if not retries:
            return None
        backoff = Backoff(initial_s=policy.initial_ms / 1000, factor=policy.multiplier, max_s=policy.max_ms / 1000)
        return Retry(max_attempts=retries + 1, backoff=backoff, on=_RETRIED)

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


# A stage that says it may be retried is retried after any failure but a refusal, which would be the same again.
_RETRIED: Final = tuple(word for word in ERROR_CLASSES if word not in ("authentication", "budget_exceeded"))


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A checked pipeline; see PIPELINE_KEYS. Made with `PipelineConfig.of`."""

    name: str
    agents: tuple[AgentConfig, ...]
    default_run_mode: RunMode = RunMode.SEQUENTIAL
    max_iterations: int = ENVELOPE_ITERATIONS_MAX
    max_llm_calls: int = ENVELOPE_LLM_CALLS_MAX
    max_agent_hops: int = ENVELOPE_AGENT_HOPS_MAX
    default_timeout_seconds: float = PIPELINE_STAGE_TIMEOUT_S
    edge_limits: tuple[EdgeLimit, ...] = ()
    clarification_resume_stage: str = ""
    confirmation_resume_stage: str = ""
    agent_review_resume_stage: str = ""
    state_schema: dict[str, MergeStrategy] = {}
    step_limit: int = PIPELINE_STEPS_MAX

    @classmethod
    def of(cls, value: Any) -> Self:
        """A PipelineConfig or a mapping of PIPELINE_KEYS; the first mistake is a ConfigError, the others its `also`."""
        data = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        found = list(problems(data))
        if found:
            first, *others = found
            also = [f"{path_text(each.path)}: {each.message}" for each in others]
            raise ConfigError(
                f"pipeline {path_text(first.path)}: {first.message}" if first.path else first.message,
                hint=first.hint,
                key=path_text(first.path),
                also=also,
            )
        return cls.from_checked(data)

    @classmethod
    def from_checked(cls, data: Mapping[str, Any]) -> Self:
        """The object of a declaration without problems."""
        plain = _named(data)
        stages = [_stage(each) for each in plain["agents"]]
        plain["agents"] = sorted(stages, key=lambda stage: stage.get("stage_order", 0))
        plain["state_schema"] = _state_schema(plain.get("state_schema") or {})
        plain["edge_limits"] = _edges(plain.get("edge_limits") or ())
        if isinstance(plain.get("default_run_mode"), str):
            plain["default_run_mode"] = plain["default_run_mode"].lower()
        return msgspec.convert({key: value for key, value in plain.items() if value is not None}, cls)

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def stage(self, name: str) -> AgentConfig | None:
        return next((stage for stage in self.agents if stage.name == name), None)

    @property
    def stage_order(self) -> list[str]:
        return [stage.name for stage in self.agents]


def _named(data: Mapping[str, Any]) -> dict[str, Any]:
    return {_ALIASES.get(key, key): value for key, value in data.items()}


def _stage(data: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in _named(data).items() if value is not None}
    for key in ("node_kind", "join_strategy", "tool_access"):
        if key in plain:
            plain[key] = plain[key].lower()
    plain["routing_rules"] = [_rule(each) for each in plain.get("routing_rules", ())]
    return plain


def _rule(data: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in data.items() if value is not None}
    if "expr" in plain:
        plain["expr"] = normal_expression(plain["expr"])
    return plain


def _state_schema(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {key: word.lower() for key, word in value.items()}
    return {each["key"]: each.get("merge", "replace").lower() for each in value}


def _edges(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, Mapping):
        ends = [(key.partition("->"), most) for key, most in value.items()]
        return [{"from": one.strip(), "to": other.strip(), "max_count": most} for (one, _, other), most in ends]
    return [dict(each) for each in value]


# ------------------------------------------------------------------ every mistake
def path_text(path: Path) -> str:
    """`agents[0].default_next`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def problems(data: Any) -> Iterator[Problem]:
    """Every mistake in a declaration, each with its path."""
    if not isinstance(data, Mapping):
        yield Problem((), f"a pipeline is a mapping of settings, not {type(data).__name__}")
        return
    yield from _keys(data, PIPELINE_KEYS, (), "a pipeline")
    plain = _named(data)
    if not plain.get("name"):
        yield Problem(("name",) if "name" in plain else (), "a pipeline needs a name")
    key = "stages" if "stages" in data else "agents"
    stages = plain.get("agents")
    if not isinstance(stages, (list, tuple)) or not stages:
        yield Problem((key,) if key in data else (), f"a pipeline needs {key}: a list with at least one stage in it")
        return
    if len(stages) > PIPELINE_STAGES_MAX:
        yield Problem((key,), f"a pipeline has at most {PIPELINE_STAGES_MAX} stages, not {len(stages)}")
        return
    for index, stage in enumerate(stages):
        if isinstance(stage, Mapping):
            yield from _keys(stage, STAGE_KEYS, (key, index), "a stage")
        else:
            yield Problem((key, index), f"a stage is a mapping of settings, not {stage!r}")
    named = [((key, index), _named(stage)) for index, stage in enumerate(stages) if isinstance(stage, Mapping)]
    yield from _names(named)
    known = {stage["name"] for _, stage in named if isinstance(stage.get("name"), str)}
    for path, stage in named:
        yield from _stage_problems(path, stage, known)
    yield from _whole_problems(plain, known)


def _keys(data: Mapping[Any, Any], table: Mapping[str, Key], path: Path, what: str) -> Iterator[Problem]:
    for written, value in data.items():
        name = _ALIASES.get(written, written)
        key = table.get(name) if isinstance(name, str) else None
        if key is None:
            near = did_you_mean(str(written), table)
            hint = f"did you mean {near!r}?" if near else f"known keys: {', '.join(table)}"
            yield Problem((*path, str(written)), f"{what} has no setting {str(written)!r}", hint)
        elif value is not None:
            yield from _value(key, written, value, (*path, written))


def _value(key: Key, name: str, value: Any, path: Path) -> Iterator[Problem]:
    kind = key.type
    if kind == "text" and not _text(value):
        yield Problem(path, f"{name} is a text of at most {NAME_LENGTH_MAX} characters, not {value!r}")
    elif kind == "flag" and not isinstance(value, bool):
        yield Problem(path, f"{name} is true or false, not {value!r}")
    elif kind == "count" and not (_whole(value) and key.least <= value < 2**63):
        yield Problem(path, f"{name} is a whole number, at least {key.least:g}, not {value!r}")
    elif kind == "seconds" and not (_real(value) and 0 < value <= 1e9):
        yield Problem(path, f"{name} is a number of seconds above 0, not {value!r}")
    elif kind == "number" and not _real(value):
        yield Problem(path, f"{name} is a number, not {value!r}")
    elif kind == "names" and not (isinstance(value, (list, tuple)) and all(map(_text, value))):
        yield Problem(path, f"{name} is a list of texts, not {value!r}")
    elif kind == "word" and not (isinstance(value, str) and value.lower() in key.words):
        near = did_you_mean(value.lower(), key.words) if isinstance(value, str) else None
        hint = f"did you mean {near!r}?" if near else None
        yield Problem(path, f"{name} is one of {', '.join(key.words)}, not {value!r}", hint)
    elif kind in _SHAPES:
        yield from _SHAPES[kind](value, path)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= NAME_LENGTH_MAX


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _rules_shape(value: Any, path: Path) -> Iterator[Problem]:
    if not isinstance(value, (list, tuple)):
        yield Problem(path, f"routing_rules is a list of rules, not {value!r}")
        return
    for index, rule in enumerate(value):
        here = (*path, index)
        if not isinstance(rule, Mapping):
            yield Problem(here, f"a rule is a mapping with a target, not {rule!r}")
            continue
        yield from _unknown(rule, _RULE_KEYS, here, "a rule")
        if not _text(rule.get("target")) or not rule["target"]:
            yield Problem(here, "a rule needs a target, the name of a stage")
        if rule.get("expr") is not None:
            if rule.get("condition") is not None:
                yield Problem((*here, "condition"), "a rule has a condition or an expr, not both")
            yield from expression_problems(rule["expr"], (*here, "expr"))
        elif rule.get("condition") is not None:
            if not isinstance(rule["condition"], str):
                yield Problem((*here, "condition"), f"a condition is a key of the output, not {rule['condition']!r}")
            if "value" not in rule:
                yield Problem(here, "a rule with a condition needs a value to compare with")


def _retry_shape(value: Any, path: Path) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem(path, f"retry_policy is a mapping of {', '.join(_RETRY_KEYS)}, not {value!r}")
        return
    yield from _unknown(value, _RETRY_KEYS, path, "a retry policy")
    retries = value.get("max_retries", 0)
    if not _whole(retries) or not 0 <= retries < RETRY_ATTEMPTS_MAX:
        yield Problem((*path, "max_retries"), f"max_retries is a whole number below {RETRY_ATTEMPTS_MAX}")
    for name in ("initial_ms", "max_ms"):
        if name in value and not (_real(value[name]) and 0 <= value[name] <= 1e12):
            yield Problem((*path, name), f"{name} is a number of milliseconds, not {value[name]!r}")
    if "multiplier" in value and not (_real(value["multiplier"]) and value["multiplier"] >= 1):
        yield Problem((*path, "multiplier"), f"multiplier is at least 1, not {value['multiplier']!r}")


def _state_shape(value: Any, path: Path) -> Iterator[Problem]:
    words = tuple(MergeStrategy)
    if isinstance(value, Mapping):
        pairs: list[tuple[Path, Any, Any]] = [((*path, str(key)), key, word) for key, word in value.items()]
    elif isinstance(value, (list, tuple)) and all(isinstance(each, Mapping) for each in value):
        pairs = [((*path, index), each.get("key"), each.get("merge", "replace")) for index, each in enumerate(value)]
    else:
        yield Problem(path, f"state_schema is a mapping of keys to {', '.join(words)}, not {value!r}")
        return
    for here, key, word in pairs:
        if not isinstance(key, str) or not key:
            yield Problem(here, "a state key is a text")
        if not isinstance(word, str) or word.lower() not in words:
            yield Problem(here, f"a state key is merged by {', '.join(words)}, not {word!r}")


def _edges_shape(value: Any, path: Path) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for key, most in value.items():
            if "->" not in str(key):
                yield Problem((*path, str(key)), f"an edge is written from->to, not {key!r}")
            if not _whole(most) or most < 1:
                yield Problem((*path, str(key)), f"max_count is a whole number, at least 1, not {most!r}")
        return
    if not isinstance(value, (list, tuple)):
        yield Problem(path, f"edge_limits is a list of from, to, max_count, not {value!r}")
        return
    for index, edge in enumerate(value):
        here = (*path, index)
        if not isinstance(edge, Mapping):
            yield Problem(here, f"an edge limit is a mapping of from, to, max_count, not {edge!r}")
            continue
        yield from _unknown(edge, _EDGE_KEYS, here, "an edge limit")
        for name in ("from", "to"):
            if not isinstance(edge.get(name), str):
                yield Problem(here, f"an edge limit needs {name}, the name of a stage")
        if not _whole(edge.get("max_count")) or edge["max_count"] < 1:
            yield Problem(
                (*here, "max_count"), f"max_count is a whole number, at least 1, not {edge.get('max_count')!r}"
            )


def _unknown(value: Mapping[Any, Any], known: tuple[str, ...], path: Path, what: str) -> Iterator[Problem]:
    for key in value:
        if key not in known:
            near = did_you_mean(str(key), known)
            hint = f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}"
            yield Problem((*path, str(key)), f"{what} has no setting {str(key)!r}", hint)


_SHAPES: Final = {"rules": _rules_shape, "retry": _retry_shape, "state": _state_shape, "edges": _edges_shape}


def _names(named: list[tuple[tuple[str, int], dict[str, Any]]]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    keys: dict[str, str] = {}
    for path, stage in named:
        name = stage.get("name")
        if not isinstance(name, str) or not name:
            if name is None or name == "":
                yield Problem((*path, "name") if name == "" else path, "a stage needs a name")
            continue
        if name in SPECIAL_TARGETS:
            yield Problem((*path, "name"), f"no stage may be called {name!r}", SPECIAL_TARGETS[name])
        if name in seen:
            yield Problem((*path, "name"), f"there is a stage {name!r} already, at {seen[name]}")
        seen.setdefault(name, path_text(path))
    for path, stage in named:
        key = stage.get("output_key")
        if not isinstance(key, str) or not key:
            continue
        if key in keys or (key in seen and key != stage.get("name")):
            yield Problem(
                (*path, "output_key"), f"output_key {key!r} is another stage's", "give each output its own key"
            )
        keys[key] = path_text(path)


def _stage_problems(path: tuple[str, int], stage: dict[str, Any], known: set[str]) -> Iterator[Problem]:
    name = stage.get("name")
    for key in ("default_next", "error_next"):
        if stage.get(key):
            yield from _target(stage[key], (*path, key), known)
    rules = stage.get("routing_rules")
    for index, rule in enumerate(rules if isinstance(rules, (list, tuple)) else ()):
        if isinstance(rule, Mapping) and isinstance(rule.get("target"), str) and rule["target"]:
            yield from _target(rule["target"], (*path, "routing_rules", index, "target"), known)
    for key in ("requires", "after", "branches"):
        names = stage.get(key)
        for index, other in enumerate(names if isinstance(names, (list, tuple)) else ()):
            if other == name:
                yield Problem((*path, key, index), f"stage {name!r} names itself in {key}")
            elif isinstance(other, str) and other not in known:
                yield _no_stage(other, (*path, key, index), known)
    if stage.get("has_llm") is True and not stage.get("model_role"):
        yield Problem((*path, "has_llm"), f"stage {name!r} has_llm and needs a model_role")
    if name and stage.get("default_next") == name and stage.get("max_visits") is None:
        yield Problem(
            (*path, "default_next"), f"stage {name!r} leads to itself and needs max_visits", "say how often it may run"
        )
    kind = str(stage.get("node_kind", "agent")).lower()
    if kind == "fork" and not stage.get("branches") and not rules:
        yield Problem((*path, "node_kind"), f"fork {name!r} needs branches, or rules that lead to them")
    if kind != "fork" and stage.get("branches"):
        yield Problem((*path, "branches"), f"stage {name!r} is no fork and has no branches", 'say node_kind = "fork"')


def _whole_problems(plain: dict[str, Any], known: set[str]) -> Iterator[Problem]:
    for key in ("clarification_resume_stage", "confirmation_resume_stage", "agent_review_resume_stage"):
        name = plain.get(key)
        if isinstance(name, str) and name and name != "end" and name not in known:
            yield _no_stage(name, (key,), known)
    limits = plain.get("edge_limits")
    for index, edge in enumerate(limits if isinstance(limits, (list, tuple)) else ()):
        for end in ("from", "to"):
            name = edge.get(end) if isinstance(edge, Mapping) else None
            if isinstance(name, str):
                yield from _target(name, ("edge_limits", index, end), known)
    for key in limits if isinstance(limits, Mapping) else ():
        for name in str(key).split("->"):
            yield from _target(name.strip(), ("edge_limits", str(key)), known)


def _target(name: Any, path: Path, known: set[str]) -> Iterator[Problem]:
    if isinstance(name, str) and name not in known and name not in SPECIAL_TARGETS:
        yield _no_stage(name, path, known)


def _no_stage(name: str, path: Path, known: set[str]) -> Problem:
    near = did_you_mean(name, sorted(known))
    names = ", ".join([*sorted(known)[:20], *SPECIAL_TARGETS])
    return Problem(path, f"there is no stage {name!r}", f"did you mean {near!r}?" if near else f"stages: {names}")


# ------------------------------------------------------------------ the published schema
def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a declaration, from the tables above."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Lyra pipeline",
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "anyOf": [{"required": ["agents"]}, {"required": ["stages"]}],
        "properties": {
            **{name: _schema(key) for name, key in PIPELINE_KEYS.items()},
            "stages": {"$ref": "#/properties/agents"},
            "run_mode": {"$ref": "#/properties/default_run_mode"},
        },
        "$defs": {
            "stage": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {
                    **{name: _schema(key) for name, key in STAGE_KEYS.items()},
                    "routing": {"$ref": "#/$defs/stage/properties/routing_rules"},
                },
            },
            "rule": _RULE_SCHEMA,
            "expression": _EXPRESSION_SCHEMA,
        },
    }


def _schema(key: Key) -> dict[str, Any]:
    shapes: dict[str, dict[str, Any]] = {
        "text": {"type": "string", "maxLength": NAME_LENGTH_MAX},
        "flag": {"type": "boolean"},
        "count": {"type": "integer", "minimum": int(key.least)},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
        "number": {"type": "number"},
        "names": {"type": "array", "items": {"type": "string"}},
        "word": {"enum": [str(word) for word in key.words]},
        "rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}},
        "retry": _RETRY_SCHEMA,
        "state": _STATE_SCHEMA,
        "edges": _EDGES_SCHEMA,
        "stages": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/stage"}},
    }
    default = {} if key.default in (None, "", (), {}) else {"default": key.default}
    return {**shapes[key.type], **default, "description": key.meaning}


_STATE_SCHEMA: Final = {"type": "object", "additionalProperties": {"enum": [str(word) for word in MergeStrategy]}}
_RETRY_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "max_retries": {"type": "integer", "minimum": 0, "default": 0},
        "initial_ms": {"type": "number", "minimum": 0, "default": 1000},
        "max_ms": {"type": "number", "minimum": 0, "default": 30000},
        "multiplier": {"type": "number", "minimum": 1, "default": 2},
    },
}
_EDGES_SCHEMA: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": list(_EDGE_KEYS),
        "properties": {
            "from": {"type": "string"},
            "to": {"type": "string"},
            "max_count": {"type": "integer", "minimum": 1},
        },
    },
}
_RULE_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["target"],
    "properties": {
        "condition": {"type": "string", "description": "a key of the stage's output"},
        "value": {"description": "what that key must equal"},
        "expr": {"$ref": "#/$defs/expression"},
        "target": {"type": "string", "description": "a stage, end, clarification or confirmation"},
    },
}
_EXPRESSION_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["op"],
    "properties": {
        "op": {"enum": list(OPS)},
        "field": {
            "type": "object",
            "additionalProperties": False,
            "required": ["key"],
            "properties": {
                "scope": {"enum": list(SCOPES), "default": "current"},
                "agent": {"type": "string"},
                "key": {"type": "string"},
            },
        },
        "value": {},
        "exprs": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/expression"}},
        "expr": {"$ref": "#/$defs/expression"},
    },
}
