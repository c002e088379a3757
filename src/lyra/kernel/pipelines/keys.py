"""The keys of a declaration: every key of a stage and of a pipeline, and the words that are their values.

`STAGE_KEYS` and `PIPELINE_KEYS` give type, default and meaning of each key. `check` and the published JSON Schema
(`schema`) are made from them, and a test compares the typed objects (`declaration`) with them, so that all three know
the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from lyra.core.limits import (
    COUNTED_MAX,
    ENVELOPE_AGENT_HOPS_MAX,
    ENVELOPE_ITERATIONS_MAX,
    ENVELOPE_LLM_CALLS_MAX,
    PIPELINE_STAGE_TIMEOUT_S,
    PIPELINE_STEPS_MAX,
    RETRY_ATTEMPTS_MAX,
)

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


def named(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data with aliases replaced by the keys' own names."""
    return {ALIASES.get(key, key): value for key, value in data.items()}
