"""What the steps of a node do, in the few words of a picture or a list: `POST stripe /v1/charges`, `total = a + b`.

The words are those of the file; nothing is judged here, and a setting of a wrong form is written as it stands. Values
of test cases and defaults do not occur. The picture of a node (`picture.py`) is made of these words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lyra.vesper.nodes.model import StepDeclaration

_CONDITION_KEYS: Final = ("condition", "guard", "check", "expression", "rule")


def words_of(value: Any) -> str:
    """Return a setting in one line: texts as they are, other values as JSON-like text."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {words_of(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(words_of(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else " ".join(str(value).split())


def setting(step: StepDeclaration, *keys: str) -> str:
    """Return the first of these settings that the step has, in one line; empty where it has none."""
    for key in keys:
        entry = step.settings.get(key)
        if entry is not None and entry.value is not None:
            return words_of(entry.value)
    return ""


def conditions_of(step: StepDeclaration, *keys: str) -> list[str]:
    """Return the conditions under these keys, one a line."""
    lines: list[str] = []
    for key in keys:
        entry = step.settings.get(key)
        if entry is None or entry.value is None:
            continue
        for item in entry.value if isinstance(entry.value, list) else [entry.value]:
            named = next((name for name in _CONDITION_KEYS if name in item), None) if isinstance(item, dict) else None
            lines.append(words_of(item if named is None else item[named]))
    return lines


def describe_step(step: StepDeclaration) -> list[str]:
    """Describe a step in one or two lines; the last has the number of tries and the time-out."""
    describe = _WORDS.get(step.operation)
    if describe is not None:
        lines = [describe(step)]
    else:
        lines = [
            " ".join([step.operation, *(f"{key}={words_of(item.value)}" for key, item in step.parameters.items())])
        ]
    limits = []
    if timeout := setting(step, "timeout"):
        limits.append(f"within {timeout}")
    retry = step.settings.get("retry_policy")
    if retry is not None and isinstance(retry.value, dict):
        limits.append(f"at most {words_of(retry.value.get('max_attempts', 3))} attempts")
    if limits:
        lines.append(", ".join(limits))
    return lines


def describe_answer(value: Any) -> str:
    """Return the code of a declared error, with its message where it has one."""
    if not isinstance(value, dict):
        return words_of(value)
    code = next((value[key] for key in ("error_code", "code", "error") if value.get(key) is not None), None)
    message = value.get("message")
    parts = [words_of(part) for part in (code, message) if part is not None]
    return ": ".join(parts) or words_of(value)


def describe_rule(rule: dict[str, Any]) -> str:
    """Describe what a rule does about its error besides compensating."""
    for key in ("return_error", "map_to"):
        if rule.get(key) is not None:
            return f"answers {describe_answer(rule[key])}"
    if rule.get("error_code") is not None:
        return f"answers {describe_answer(rule)}"
    action = rule.get("action")
    if action in ("retry", "backoff"):
        count = rule.get("max_attempts")
        more = rule.get("max_retries")
        if count is not None:
            return f"tries again, at most {words_of(count)} attempts"
        return "tries again" + ("" if more is None else f", at most {words_of(more)} times")
    if action == "circuit_breaker":
        return f"opens a circuit breaker after {words_of(rule.get('threshold', 5))} failures"
    if action == "return_error":
        return "answers this error"
    return "" if action in (None, "compensate") else words_of(action)


def rules_of(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the error and the mapping of each rule of an `on_error`, whose index is that of its entry in the file."""
    if isinstance(value, list):
        return [(_error_of(item), item) for item in value if isinstance(item, dict)]
    if not isinstance(value, dict):
        return []
    if any(key in value for key in ("action", "error_type", "error_code", "return_error", "map_to")):
        return [(_error_of(value), value)]
    return [(str(error), item if isinstance(item, dict) else {"action": item}) for error, item in value.items()]


def _error_of(rule: dict[str, Any]) -> str:
    error = str(rule.get("error_type") or rule.get("error") or "*")
    return "any error" if error in ("*", "any") else error


def _fields(step: StepDeclaration, *keys: str) -> str:
    for key in keys:
        entry = step.settings.get(key)
        if entry is not None:
            return ", ".join(map(str, entry.value)) if isinstance(entry.value, dict) else words_of(entry.value)
    return ""


def _assign(step: StepDeclaration, value: str) -> str:
    return f"{setting(step, 'output') or step.name} = {value}"


def _call(step: StepDeclaration) -> str:
    method = setting(step, "method") or "POST"
    return " ".join(part for part in (method, setting(step, "provider"), setting(step, "endpoint", "url")) if part)


def _transition(step: StepDeclaration) -> str:
    entity = setting(step, "entity")
    of_entity = f" of {entity}" if entity else ""
    return f"{setting(step, 'state_machine')}{of_entity}: {setting(step, 'from')} → {setting(step, 'to')}"


def _transform(step: StepDeclaration) -> str:
    keys: Sequence[str] = ("function", "condition", "field", "group_by", "aggregations")
    more = "; ".join(text for key in keys if (text := setting(step, key)))
    words = f"{setting(step, 'transform')} of {setting(step, 'input')}"
    return _assign(step, f"{words}: {more}" if more else words)


def _return(step: StepDeclaration) -> str:
    error = step.settings.get("return_error") or step.settings.get("error")
    if error is not None:
        return describe_answer(error.value)
    return _fields(step, "return_success", "success")


_WORDS: Final[dict[str, Callable[[StepDeclaration], str]]] = {
    "state_machine_transition": _transition,
    "database_query": lambda step: setting(step, "query"),
    "database_write": lambda step: f"adds a row to {setting(step, 'table')}: {_fields(step, 'data')}",
    "database_update": lambda step: (
        f"changes {_fields(step, 'set')} in {setting(step, 'table')} where {setting(step, 'where')}"
    ),
    "database_delete": lambda step: f"removes rows from {setting(step, 'table')} where {setting(step, 'where')}",
    "external_api_call": _call,
    "event_publish": lambda step: f"publishes {setting(step, 'event_type')}",
    "event_subscribe": lambda step: f"subscribes {setting(step, 'handler')} to {setting(step, 'event_type')}",
    "data_transform": _transform,
    "string_template": lambda step: _assign(step, f"“{setting(step, 'template')}”"),
    "arithmetic": lambda step: _assign(step, setting(step, "expression")),
    "return": _return,
    "call_node": lambda step: f"runs the node {setting(step, 'node_id')}",
    "agent_call": lambda step: f"asks the agent {setting(step, 'agent')}",
    "matrix.multiply": lambda step: _assign(step, f"{setting(step, 'left')} × {setting(step, 'right')}"),
}
