"""Every mistake of a declaration, each with its path (`agents[0].default_next`) and what to try.

`problems` checks plain data: keys and values against the tables of `routing`, then names, targets and bounds against
one another. It raises nothing and runs nothing; `declaration` raises the first mistake, and `files` knows their lines.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from lyra.core.checking.check import did_you_mean
from lyra.core.checking.schema import schema_problems
from lyra.core.limits import COUNTED_MAX, NAME_LENGTH_MAX, PIPELINE_STAGES_MAX, RETRY_ATTEMPTS_MAX
from lyra.kernel.pipelines.routing import (
    ALIASES,
    EDGE_ALIASES,
    EDGE_KEYS,
    GENERATION_KEYS,
    MILLISECONDS_MAX,
    PIPELINE_KEYS,
    RETRY_KEYS,
    RULE_KEYS,
    SECONDS_MAX,
    SPECIAL_TARGETS,
    STAGE_KEYS,
    STATE_KEYS,
    JoinStrategy,
    Key,
    MergeStrategy,
    Path,
    Problem,
    RunMode,
    expression_problems,
    fields_of,
    resolve_aliases,
)


def path_text(path: Path) -> str:
    """Return a path as text, such as `agents[0].default_next`."""
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
    plain = resolve_aliases(data)
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
    written = [
        ((key, index), resolve_aliases(stage)) for index, stage in enumerate(stages) if isinstance(stage, Mapping)
    ]
    yield from _names(written)
    known = {stage["name"] for _, stage in written if isinstance(stage.get("name"), str)}
    outputs = {
        stage[key] for _, stage in written for key in ("name", "agent", "output_key") if isinstance(stage.get(key), str)
    }
    for path, stage in written:
        yield from _stage_problems(path, stage, known)
        yield from _field_problems(path, stage, outputs)
    yield from _find_pipeline_problems(plain, known)
    if "stages" in data and "agents" in data:
        yield Problem(("agents",), "a pipeline has stages or agents, not both", "they are two words for one list")
    if str(plain.get("default_run_mode") or "").lower() == RunMode.PARALLEL:
        yield from _deadlock(written)


def _keys(data: Mapping[Any, Any], table: Mapping[str, Key], path: Path, what: str) -> Iterator[Problem]:
    for written, value in data.items():
        name = ALIASES.get(written, written)
        key = table.get(name) if isinstance(name, str) else None
        if key is None:
            yield from _unknown({written: value}, table, path, what)
        elif value is not None:
            yield from _value(key, written, value, (*path, written))


def _value(key: Key, name: str, value: Any, path: Path) -> Iterator[Problem]:
    kind = key.type
    if kind == "text" and not _text(value):
        yield Problem(path, f"{name} is a text of at most {NAME_LENGTH_MAX} characters, not {value!r}")
    elif kind == "flag" and not isinstance(value, bool):
        yield Problem(path, f"{name} is true or false, not {value!r}")
    elif kind == "count" and not _count(value, key.least, key.most):
        yield Problem(path, f"{name} is a whole number, at least {key.least} and at most {key.most}, not {value!r}")
    elif kind == "seconds" and not (_real(value) and 0 < value <= SECONDS_MAX):
        yield Problem(path, f"{name} is a number of seconds above 0 and at most {SECONDS_MAX}, not {value!r}")
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


def _count(value: Any, least: int, most: int = COUNTED_MAX) -> bool:
    """Return whether a value is a whole number in these bounds; 3.0 is one, as in JSON Schema."""
    return _real(value) and least <= value <= most and value == int(value)


def _real(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _rules_shape(value: Any, path: Path) -> Iterator[Problem]:
    if not isinstance(value, (list, tuple)):
        yield Problem(path, f"routing_rules is a list of rules, not {value!r}")
        return
    for index, rule in enumerate(value):
        here = (*path, index)
        if not isinstance(rule, Mapping):
            yield Problem(here, f"a rule is a mapping with a target, not {rule!r}")
            continue
        yield from _unknown(rule, RULE_KEYS, here, "a rule")
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
        yield Problem(path, f"retry_policy is a mapping of {', '.join(RETRY_KEYS)}, not {value!r}")
        return
    yield from _unknown(value, RETRY_KEYS, path, "a retry policy")
    given = {name: setting for name, setting in value.items() if setting is not None}
    if not _count(given.get("max_retries", 0), 0, RETRY_ATTEMPTS_MAX - 1):
        most = RETRY_ATTEMPTS_MAX - 1
        yield Problem((*path, "max_retries"), f"max_retries is a whole number from 0 to {most}")
    for name in ("initial_ms", "max_ms"):
        if not (_real(given.get(name, 0)) and 0 <= given.get(name, 0) <= MILLISECONDS_MAX):
            most = MILLISECONDS_MAX
            yield Problem((*path, name), f"{name} is a number of milliseconds from 0 to {most}, not {given[name]!r}")
    if not (_real(given.get("multiplier", 1)) and given.get("multiplier", 1) >= 1):
        yield Problem((*path, "multiplier"), f"multiplier is at least 1, not {given['multiplier']!r}")


def _state_shape(value: Any, path: Path) -> Iterator[Problem]:
    words = tuple(MergeStrategy)
    if isinstance(value, Mapping):
        pairs: list[tuple[Path, Any, Any]] = [((*path, str(key)), key, word) for key, word in value.items()]
    elif isinstance(value, (list, tuple)) and all(isinstance(entry, Mapping) for entry in value):
        pairs = [((*path, index), entry.get("key"), _merge(entry)) for index, entry in enumerate(value)]
        for index, entry in enumerate(value):
            yield from _unknown(entry, STATE_KEYS, (*path, index), "a state key")
    else:
        yield Problem(path, f"state_schema is a mapping of keys to {', '.join(words)}, not {value!r}")
        return
    for here, key, word in pairs:
        if not isinstance(key, str) or not key:
            yield Problem(here, "a state key is a text")
        if not isinstance(word, str) or word.lower() not in words:
            yield Problem(here, f"a state key is merged by {', '.join(words)}, not {word!r}")


def _merge(entry: Mapping[Any, Any]) -> Any:
    word = entry.get("merge")
    return MergeStrategy.REPLACE if word is None else word


def _edges_shape(value: Any, path: Path) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for key, most in value.items():
            if "->" not in str(key):
                yield Problem((*path, str(key)), f"an edge is written from->to, not {key!r}")
            if not _count(most, 1):
                yield Problem((*path, str(key)), _MAX_COUNT.format(most))
        return
    if not isinstance(value, (list, tuple)):
        yield Problem(path, f"edge_limits is a list of from, to, max_count, not {value!r}")
        return
    for index, given in enumerate(value):
        here = (*path, index)
        if not isinstance(given, Mapping):
            yield Problem(here, f"an edge limit is a mapping of from, to, max_count, not {given!r}")
            continue
        edge = _edge(given)
        if len(edge) < len(given):
            yield Problem(here, "an edge limit names each of its ends once")
        yield from _unknown(edge, EDGE_KEYS, here, "an edge limit")
        for name in ("from", "to"):
            if not isinstance(edge.get(name), str):
                yield Problem(here, f"an edge limit needs {name}, the name of a stage")
        if not _count(edge.get("max_count"), 1):
            yield Problem((*here, "max_count"), _MAX_COUNT.format(edge.get("max_count")))


_MAX_COUNT: Final = f"max_count is a whole number, at least 1 and at most {COUNTED_MAX}, not {{!r}}"


def _edge(data: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return an edge limit with the keys `from` and `to`, which may be written from_stage and to_stage, or source and
    target."""
    return {EDGE_ALIASES.get(key, key): value for key, value in data.items()}


def _unknown(value: Mapping[Any, Any], known: Collection[str], path: Path, what: str) -> Iterator[Problem]:
    for key in value:
        if key not in known:
            near = did_you_mean(str(key), known)
            hint = f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}"
            yield Problem((*path, str(key)), f"{what} has no setting {str(key)!r}", hint)


def _generation_shape(value: Any, path: Path) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem(path, f"generation is a mapping of {', '.join(GENERATION_KEYS)}, not {value!r}")
        return
    yield from _unknown(value, GENERATION_KEYS, path, "generation")
    stop = value.get("stop")
    if stop is not None and not (isinstance(stop, (list, tuple)) and all(map(_text, stop))):
        yield Problem((*path, "stop"), f"stop is a list of texts, not {stop!r}")
    for name in ("repeat_penalty", "top_p"):
        if value.get(name) is not None and not (_real(value[name]) and value[name] >= 0):
            yield Problem((*path, name), f"{name} is a number, at least 0, not {value[name]!r}")
    for name, least in (("top_k", 0), ("seed", -COUNTED_MAX)):
        if value.get(name) is not None and not _count(value[name], least):
            yield Problem((*path, name), f"{name} is a whole number from {least} to {COUNTED_MAX}, not {value[name]!r}")


def _schema_shape(value: Any, path: Path) -> Iterator[Problem]:
    for where, message, hint in schema_problems(value):
        yield Problem((*path, *where), message, hint)


_SHAPES: Final = {
    "rules": _rules_shape,
    "retry": _retry_shape,
    "generation": _generation_shape,
    "schema": _schema_shape,
    "state": _state_shape,
    "edges": _edges_shape,
}


def _names(written: list[tuple[tuple[str, int], dict[str, Any]]]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    keys: dict[str, str] = {}
    for path, stage in written:
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
    for path, stage in written:
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
    overflow = str(stage.get("context_overflow") or "fail").lower()
    if overflow != "fail" and stage.get("max_context_tokens") is None:
        yield Problem((*path, "context_overflow"), f"stage {name!r} has a context_overflow and no max_context_tokens")
    kind = str(stage.get("node_kind", "agent")).lower()
    if kind == "fork" and not stage.get("branches") and not rules:
        yield Problem((*path, "node_kind"), f"fork {name!r} needs branches, or rules that lead to them")
    if kind != "fork" and stage.get("branches"):
        yield Problem((*path, "branches"), f"stage {name!r} is no fork and has no branches", 'say node_kind = "fork"')


def _field_problems(path: tuple[str, int], stage: dict[str, Any], outputs: set[str]) -> Iterator[Problem]:
    """Mistakes in rules that read the output of an unknown stage."""
    rules = stage.get("routing_rules")
    for index, rule in enumerate(rules if isinstance(rules, (list, tuple)) else ()):
        expr = rule.get("expr") if isinstance(rule, Mapping) else None
        for where, field in fields_of(expr, (*path, "routing_rules", index, "expr")):
            name = field.get("agent")
            if isinstance(name, str) and name and name not in outputs:
                near = did_you_mean(name, sorted(outputs))
                hint = f"did you mean {near!r}?" if near else f"outputs: {', '.join(sorted(outputs - {''})[:20])}"
                yield Problem((*where, "agent"), f"no stage gives an output called {name!r}", hint)


def _find_pipeline_problems(plain: dict[str, Any], known: set[str]) -> Iterator[Problem]:
    for key in ("clarification_resume_stage", "confirmation_resume_stage", "agent_review_resume_stage"):
        name = plain.get(key)
        if isinstance(name, str) and name and name != "end" and name not in known:
            yield _no_stage(name, (key,), known)
    limits = plain.get("edge_limits")
    for index, edge in enumerate(limits if isinstance(limits, (list, tuple)) else ()):
        for end in ("from", "to"):
            name = _edge(edge).get(end) if isinstance(edge, Mapping) else None
            if isinstance(name, str):
                yield from _target(name, ("edge_limits", index, end), known)
    for key in limits if isinstance(limits, Mapping) else ():
        for name in str(key).split("->"):
            yield from _target(name.strip(), ("edge_limits", str(key)), known)


def _deadlock(written: list[tuple[tuple[str, int], dict[str, Any]]]) -> Iterator[Problem]:
    """Yield a mistake for stages in parallel mode that wait for one another, so that none of them would ever run."""
    left = {stage["name"]: (path, stage) for path, stage in written if isinstance(stage.get("name"), str)}
    known = set(left)

    def waits(stage: dict[str, Any]) -> bool:
        requires = [name in left for name in _list_names(stage, "requires") if name in known]
        some = str(stage.get("join_strategy") or "").lower() == JoinStrategy.ANY and requires
        after = [name in left for name in _list_names(stage, "after") if name in known]
        return (all(requires) if some else any(requires)) or any(after)

    while due := [name for name, (_, stage) in left.items() if not waits(stage)]:
        for name in due:
            del left[name]
    if left:
        path, stage = next(iter(left.values()))
        key = "requires" if stage.get("requires") else "after"
        yield Problem((*path, key), f"these stages wait for one another: {', '.join(left)}", "one of them has to begin")


def _list_names(stage: dict[str, Any], key: str) -> list[str]:
    names = stage.get(key)
    return [name for name in names if isinstance(name, str)] if isinstance(names, (list, tuple)) else []


def _target(name: Any, path: Path, known: set[str]) -> Iterator[Problem]:
    if isinstance(name, str) and name not in known and name not in SPECIAL_TARGETS:
        yield _no_stage(name, path, known)


def _no_stage(name: str, path: Path, known: set[str]) -> Problem:
    near = did_you_mean(name, sorted(known))
    names = ", ".join([*sorted(known)[:20], *SPECIAL_TARGETS])
    return Problem(path, f"there is no stage {name!r}", f"did you mean {near!r}?" if near else f"stages: {names}")
