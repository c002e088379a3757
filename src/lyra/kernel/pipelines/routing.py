"""Routing of pipelines: rules and expressions, as pure functions of the facts of a session; and the declared keys.

A rule is `{"condition": key, "value": v, "target": stage}` (the last output has that key, and it equals that value) or
`{"expr": {…}, "target": stage}`. An expression is a mapping with an `op` of `OPS`; a comparison names a `field` by its
`scope` (`SCOPES`). A missing field makes every comparison false, `neq` too, and so does a number compared with a value
that is none. Nothing here raises while it decides: `expression_problems` finds every mistake before a pipeline starts.
The tables of keys explain every key of a stage and of a pipeline. Next: `declaration` and `session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from lyra.core.checking.check import did_you_mean
from lyra.core.checking.schema import is_equal_json
from lyra.core.limits import (
    COUNTED_MAX,
    ENVELOPE_AGENT_HOPS_MAX,
    ENVELOPE_ITERATIONS_MAX,
    ENVELOPE_LLM_CALLS_MAX,
    PIPELINE_EXPRESSION_DEPTH_MAX,
    PIPELINE_STAGE_TIMEOUT_S,
    PIPELINE_STEPS_MAX,
    RETRY_ATTEMPTS_MAX,
)

Path = tuple[str | int, ...]


class Problem(NamedTuple):
    """One mistake in a declaration: its path, what is wrong, and a hint."""

    path: Path
    message: str
    hint: str | None = None


class Facts(NamedTuple):
    """Everything that a rule may read."""

    current: Mapping[str, Any]  # the output of the stage that just ended
    outputs: Mapping[str, Mapping[str, Any]]  # of each stage, by stage name, agent name and output_key
    meta: Mapping[str, Any]  # the envelope's metadata
    interrupt: Mapping[str, Any]  # the answer to the last question
    state: Mapping[str, Any]  # what the pipeline's state_schema gathers


SCOPES: Final[dict[str, str]] = {
    "current": "the output of the stage that just ended",
    "agent": "the output of the stage named by `agent`: by its name, its agent's or its output_key",
    "meta": "the envelope's metadata",
    "interrupt": "the answer to the last interrupt: text, approved, decision, data",
    "state": "the pipeline's state, as state_schema merges it",
}

OPS: Final[dict[str, str]] = {
    "eq": "the field equals value",
    "neq": "the field is there and does not equal value",
    "gt": "the field is a number above value",
    "lt": "the field is a number below value",
    "gte": "the field is a number, value or above",
    "lte": "the field is a number, value or below",
    "contains": "the field is a text with value in it, a list with value among its items, or a mapping with that key",
    "exists": "the field is there",
    "not_exists": "the field is not there",
    "and": "every expression of exprs holds",
    "or": "at least one expression of exprs holds",
    "not": "expr does not hold",
    "always": "holds",
}
JOINING: Final = ("and", "or")
WITH_VALUE: Final = ("eq", "neq", "gt", "lt", "gte", "lte", "contains")

_MISSING: Final = object()


# ------------------------------------------------------------------ deciding
def condition_holds(condition: str | None, value: Any, output: Mapping[str, Any]) -> bool:
    """Return whether the output has the key and it equals the value; True without a condition."""
    if condition is None:
        return True
    actual = _value_at(output, condition)
    return actual is not _MISSING and is_equal_json(actual, value)


def holds(expression: Mapping[str, Any], facts: Facts) -> bool:
    """Return whether a checked expression holds."""
    op = expression["op"]
    if op == "always":
        return True
    if op == "and":
        return all(holds(part, facts) for part in expression["exprs"])
    if op == "or":
        return any(holds(part, facts) for part in expression["exprs"])
    if op == "not":
        return not holds(expression["expr"], facts)
    actual = _look_up(expression["field"], facts)
    if op == "exists":
        return actual is not _MISSING
    if op == "not_exists":
        return actual is _MISSING
    return actual is not _MISSING and _COMPARISONS[op](actual, expression.get("value"))


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _contains(actual: Any, value: Any) -> bool:
    if isinstance(actual, str):
        return isinstance(value, str) and value in actual
    if isinstance(actual, (list, tuple)):
        return any(is_equal_json(item, value) for item in actual)
    return isinstance(actual, Mapping) and isinstance(value, str) and value in actual


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": is_equal_json,
    "neq": lambda actual, value: not is_equal_json(actual, value),
    "gt": lambda actual, value: _number(actual) and _number(value) and actual > value,
    "lt": lambda actual, value: _number(actual) and _number(value) and actual < value,
    "gte": lambda actual, value: _number(actual) and _number(value) and actual >= value,
    "lte": lambda actual, value: _number(actual) and _number(value) and actual <= value,
    "contains": _contains,
}


def _look_up(field: Mapping[str, Any], facts: Facts) -> Any:
    scope = field["scope"]
    if scope == "agent":
        return _value_at(facts.outputs.get(field["agent"], {}), field["key"])
    return _value_at(getattr(facts, scope), field["key"])


def _value_at(holder: Any, key: str) -> Any:
    """Return the value of a key; where there is no key of that whole name, dots lead into mappings."""
    if isinstance(holder, Mapping) and key in holder:
        return holder[key]
    head, dot, rest = key.partition(".")
    if not dot or not isinstance(holder, Mapping) or head not in holder:
        return _MISSING
    return _value_at(holder[head], rest)


# ------------------------------------------------------------------ reading declarations
def _word(value: Any, words: Mapping[str, str]) -> str | None:
    """Return the word of the table in any spelling: `NotExists`, `not_exists`, `NOT_EXISTS`."""
    if not isinstance(value, str):
        return None
    plain = value.replace("_", "").lower()
    return next((word for word in words if word.replace("_", "") == plain), None)


def normal_expression(expression: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a checked expression with its words in lower case."""
    op = _word(expression["op"], OPS)
    assert op is not None
    if op in JOINING:
        return {"op": op, "exprs": [normal_expression(part) for part in expression["exprs"]]}
    if op == "not":
        return {"op": op, "expr": normal_expression(expression["expr"])}
    if op == "always":
        return {"op": op}
    given = {key: value for key, value in expression["field"].items() if value is not None}
    field = {**given, "scope": _word(given.get("scope", "current"), SCOPES)}
    return {"op": op, "field": field, **({"value": expression["value"]} if op in WITH_VALUE else {})}


def expression_problems(expression: Any, path: Path = (), depth: int = 1) -> Iterator[Problem]:
    """Every mistake in an expression."""
    if not isinstance(expression, Mapping):
        yield Problem(path, f"an expression is a mapping with an op, not {expression!r}")
        return
    if depth > PIPELINE_EXPRESSION_DEPTH_MAX:
        yield Problem(path, f"an expression is nested more than {PIPELINE_EXPRESSION_DEPTH_MAX} levels deep")
        return
    op = _word(expression.get("op"), OPS)
    if op is None:
        yield _no_such(expression.get("op", "nothing"), OPS, (*path, "op"), "op")
        return
    wanted = ("exprs",) if op in JOINING else ("expr",) if op == "not" else () if op == "always" else ("field",)
    wanted = (*wanted, "value") if op in WITH_VALUE else wanted
    for key in expression:
        if key not in ("op", *wanted):
            yield Problem((*path, str(key)), f"{op} has no setting {str(key)!r}", f"it takes {', '.join(wanted)}")
    missing = [key for key in wanted if key not in expression]
    for key in missing:
        yield Problem(path, f"{op} needs {key}", OPS[op])
    if missing:
        return
    if op in JOINING:
        yield from _list_problems(expression["exprs"], (*path, "exprs"), depth)
    elif op == "not":
        yield from expression_problems(expression["expr"], (*path, "expr"), depth + 1)
    elif op != "always":
        yield from _field_problems(expression["field"], (*path, "field"))


def fields_of(expression: Any, path: Path = (), depth: int = 1) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every field that an expression reads, with its path; none for a value that is no expression."""
    if not isinstance(expression, Mapping) or depth > PIPELINE_EXPRESSION_DEPTH_MAX:
        return
    if isinstance(expression.get("field"), Mapping):
        yield (*path, "field"), expression["field"]
    yield from fields_of(expression.get("expr"), (*path, "expr"), depth + 1)
    exprs = expression.get("exprs")
    for index, part in enumerate(exprs if isinstance(exprs, (list, tuple)) else ()):
        yield from fields_of(part, (*path, "exprs", index), depth + 1)


def _list_problems(exprs: Any, path: Path, depth: int) -> Iterator[Problem]:
    if not isinstance(exprs, (list, tuple)) or not exprs:
        yield Problem(path, "exprs is a list of expressions, with at least one in it")
        return
    for index, part in enumerate(exprs):
        yield from expression_problems(part, (*path, index), depth + 1)


def _field_problems(field: Any, path: Path) -> Iterator[Problem]:
    if not isinstance(field, Mapping):
        yield Problem(path, f"a field is a mapping with scope and key, not {field!r}")
        return
    field = {key: value for key, value in field.items() if value is not None}
    scope = _word(field.get("scope", "current"), SCOPES)
    if scope is None:
        yield _no_such(field["scope"], SCOPES, (*path, "scope"), "scope")
        return
    wanted = ("scope", "agent", "key") if scope == "agent" else ("scope", "key")
    for key in field:
        if key not in wanted:
            hint = f"it takes {', '.join(wanted)}"
            yield Problem((*path, str(key)), f"a field of scope {scope} has no setting {str(key)!r}", hint)
    for key in wanted[1:]:
        if not isinstance(field.get(key), str) or not field[key]:
            yield Problem((*path, key) if key in field else path, f"a field of scope {scope} needs {key}, a text")


def _no_such(value: Any, words: Mapping[str, str], path: Path, what: str) -> Problem:
    near = did_you_mean(value.lower(), words) if isinstance(value, str) else None
    return Problem(
        path, f"there is no {what} {value!r}", f"did you mean {near!r}?" if near else f"{what}s: {', '.join(words)}"
    )


# ---------------------------------------------------------------- keys
# The keys of a declaration: every key of a stage and of a pipeline, and the words that are their values.

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


class ContextOverflow(StrEnum):
    FAIL = "fail"
    TRUNCATE_OLDEST = "truncate_oldest"


class OutputMode(StrEnum):
    STRUCTURED = "structured"
    TEXT = "text"


class TokenStream(StrEnum):
    OFF = "off"
    DEBUG = "debug"
    AUTHORITATIVE = "authoritative"


class MergeStrategy(StrEnum):
    REPLACE = "replace"
    APPEND = "append"
    MERGE_DICT = "merge_dict"


class Key(NamedTuple):
    """One key of a declaration. `least` and `most` are inclusive; `words` are the values of a word."""

    type: str  # text flag count seconds number names word rules retry generation schema state edges stages
    default: Any
    meaning: str
    least: int = 0
    words: tuple[str, ...] = ()
    most: int = COUNTED_MAX


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
    "tool_access": Key(
        "word",
        None,
        "what its agent's tools may do: others are left out",
        0,
        tuple(ToolAccess),
    ),
    "allowed_tools": Key("names", (), "the tools that its agent is left; by default all that the agent has"),
    "model_role": Key("text", "", "which model, by role"),
    "prompt_key": Key("text", "", "which system prompt, by key"),
    "temperature": Key("number", None, "handed to the model"),
    "max_tokens": Key("count", None, "tokens one answer of the model may have", 1),
    "generation": Key("generation", None, "stop, repeat_penalty, top_p, top_k, seed: handed to the model"),
    "max_context_tokens": Key(
        "count", None, "tokens (four characters each) of input and earlier outputs that its agent may get", 1
    ),
    "context_overflow": Key(
        "word",
        "fail",
        "where there are more: the stage fails, or outputs are left out, the first ones first",
        0,
        tuple(ContextOverflow),
    ),
    "output_mode": Key(
        "word", "structured", "text: an agent may give a text, kept as the key text", 0, tuple(OutputMode)
    ),
    "token_stream": Key(
        "word",
        "off",
        "whether its agent's answer is streamed: for debugging, or as the answer",
        0,
        tuple(TokenStream),
    ),
    "streaming_prompt_key": Key("text", "", "which prompt to stream with, by key; by default that of prompt_key"),
    "output_key": Key("text", "", "a second name for its output; by default only the agent's own"),
    "required_output_fields": Key("names", (), "keys its output must have; without one the stage failed"),
    "output_schema": Key("schema", None, "the JSON Schema of its output; where it does not fit the stage failed"),
    "routing_rules": Key("rules", (), "where to go after it: the first rule that holds"),
    "default_next": Key("text", "", "where to go when no rule holds; nowhere means the end"),
    "error_next": Key("text", "", "where to go when it failed; nowhere ends the pipeline"),
    "timeout_seconds": Key("seconds", None, "seconds one run may take; by default default_timeout_seconds"),
    "max_retries": Key("count", 0, "runs after a failed first one", most=RETRY_ATTEMPTS_MAX - 1),
    "retry_policy": Key("retry", None, "max_retries, initial_ms, max_ms, multiplier: retries with these pauses"),
    "max_visits": Key("count", None, "times it may be entered; once more ends the pipeline", 1),
    "idempotent": Key("flag", False, "running it twice does no harm: after a crash it is run again without a question"),
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
    "max_input_tokens": Key("count", None, "tokens sent to models before it stops; without it there is no bound", 1),
    "max_output_tokens": Key("count", None, "tokens of answers before it stops; without it there is no bound", 1),
    "default_timeout_seconds": Key("seconds", PIPELINE_STAGE_TIMEOUT_S, "seconds one run of a stage may take"),
    "edge_limits": Key("edges", (), "how often one edge may be taken: from, to, max_count"),
    "clarification_resume_stage": Key("text", "", "where to go on after a clarification"),
    "confirmation_resume_stage": Key("text", "", "where to go on after a confirmation that was given"),
    "agent_review_resume_stage": Key("text", "", "where to go on after a review"),
    "state_schema": Key("state", {}, "keys of outputs gathered in the pipeline's state: replace, append or merge_dict"),
    "step_limit": Key("count", PIPELINE_STEPS_MAX, "gates and forks passed in a row", 1),
}
WORDS: Final = tuple(name for name, key in STAGE_KEYS.items() if key.type == "word")
ALIASES: Final = {
    "stages": "agents",
    "routing": "routing_rules",
    "run_mode": "default_run_mode",
    "edge_limit": "edge_limits",
}
RULE_KEYS: Final = ("condition", "value", "expr", "target")
EDGE_KEYS: Final = ("from", "to", "max_count")
EDGE_ALIASES: Final = {"from_stage": "from", "source": "from", "to_stage": "to", "target": "to"}
GENERATION_KEYS: Final = ("stop", "repeat_penalty", "top_p", "top_k", "seed")
RETRY_KEYS: Final = ("max_retries", "initial_ms", "max_ms", "multiplier")
STATE_KEYS: Final = ("key", "merge")
SECONDS_MAX: Final = 10**9
MILLISECONDS_MAX: Final = 10**12


def resolve_aliases(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data with aliases replaced by the keys' own names."""
    return {ALIASES.get(key, key): value for key, value in data.items()}
