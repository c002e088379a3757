"""Rules about errors: `on_error` of a step, `error_handling` of the node, and retries.

Each entry becomes an `ErrorRule`; an entry that joins `compensate` with `return_error` has both. `max_attempts`
counts the first attempt, `max_retries` does not.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.vesper.check.state import CheckState, NameScope
from lyra.vesper.check.steps import Steps
from lyra.vesper.ir import ANSWERING, Constant, ErrorAnswer, ErrorRule, Step, StepRetry
from lyra.vesper.nodes.model import Setting, StepDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.limits import ATTEMPTS_MAX
from lyra.vesper.values.triggers import seconds_of
from lyra.vesper.values.types import STRING

ACTIONS: Final = ("retry", "backoff", "map_to", "return_error", "compensate", "circuit_breaker")
_BACKOFFS: Final = ("exponential", "linear", "constant")
_FOR_PEOPLE: Final = ("notify", "log_level")
_STATUS: Final = re.compile(r"http_[0-9]{3}\Z")
_RETRY_KEYS: Final = frozenset(
    {"max_attempts", "max_retries", "initial_delay", "retry_after", "backoff", "backoff_base", "description"}
)
_KEYS: Final = frozenset(
    {
        *("action", "error_type", "error", "return_error", "map_to", "error_code", "message", "compensation_steps"),
        *("max_retries", "max_attempts", "retry_after", "backoff", "backoff_base", "initial_delay", "threshold"),
        *("timeout", "notify", "log_level", "description"),
    }
)


class ErrorRules:
    """Reads the rules of one node."""

    def __init__(self, state: CheckState, steps: Steps) -> None:
        self.state = state
        self.steps = steps

    def read_node(self, scope: NameScope) -> tuple[ErrorRule, ...]:
        rules = []
        caught: set[str] = set()
        for declared in self.state.node.error_handling:
            compensation = self.steps.block(declared.compensation, scope.copy_with())
            entry = {key: setting.value for key, setting in declared.settings.items()}
            rule = self._rule(any_error(declared.code), entry, declared.path, scope, compensation)
            if rule is not None:
                self._judge_order(rule, declared.path, caught)
                rules.append(rule)
        return tuple(rules)

    def read_step(self, step: StepDeclaration, scope: NameScope) -> tuple[ErrorRule, ...]:
        """Return the rules of `on_error` in order, `*` last."""
        rules: list[ErrorRule] = []
        caught: set[str] = set()
        for index, (error, entry, path) in enumerate(self._entries(step)):
            compensation = self.steps.block(step.compensations.get(index, ()), scope.copy_with())
            rule = self._rule(error, entry, path, scope, compensation)
            if rule is not None:
                self._judge_order(rule, path, caught)
                rules.append(rule)
        return tuple(sorted(rules, key=lambda rule: rule.error == "*"))

    def _judge_order(self, rule: ErrorRule, path: Path, caught: set[str]) -> None:
        """Refuse a rule for a named error after one that answers any, remark on one whose error is answered before;
        `caught` are the errors that are answered so far."""
        if rule.action not in ANSWERING:
            return
        earlier = rule.error if rule.error in caught else f"{rule.error[:-2]}xx"
        if "*" in caught and rule.error != "*":
            message = f"the rule for `{rule.error}` is never reached: a rule for any error stands before it"
            self.state.error("unreachable", message, path, hint='move the rule for "*" to the end')
        elif earlier in caught and (earlier == rule.error or _STATUS.match(rule.error)):
            message = f"the rule for `{rule.error}` is never reached: the one for `{earlier}` stands before it"
            self.state.warn(
                "unreachable", message, path, hint=f"move it before the rule for `{earlier}`, or leave it out"
            )
        caught.add(rule.error)

    def _entries(self, step: StepDeclaration) -> list[tuple[str, dict[str, Any], Path]]:
        setting = step.settings.get("on_error") or step.settings.get("error_handling")
        if setting is None or setting.value is None:
            return []
        value = setting.value
        if isinstance(value, dict) and any(
            key in _KEYS and not (key == "timeout" and isinstance(item, dict)) for key, item in value.items()
        ):
            return [(_error_of(value), value, setting.path)]
        if isinstance(value, dict):
            return [
                (any_error(str(code)), item if isinstance(item, dict) else {"action": item}, (*setting.path, code))
                for code, item in value.items()
            ]
        if not isinstance(value, list):
            self.state.error("wrong_form", "`on_error` is a list of rules", setting.path, value=True)
            return []
        entries = []
        for index, item in enumerate(value):
            if isinstance(item, dict):
                entries.append((_error_of(item), item, (*setting.path, index)))
            else:
                self.state.error("wrong_form", "a rule is a mapping", (*setting.path, index), value=True)
        return entries

    def _rule(
        self, error: str, entry: dict[str, Any], path: Path, scope: NameScope, compensation: tuple[Step, ...]
    ) -> ErrorRule | None:
        self.state.judge_keys(entry, _KEYS, path)
        for key in entry:
            if key in _FOR_PEOPLE:
                message = f"`{key}` has no effect: `observability` has alerts and log records"
                self.state.info("no_effect", message, (*path, key))
        answer = self._answer(error, entry, path, scope)
        action = self._action(entry, path, compensation, answer)
        if action is None:
            return None
        retry = self.retry(entry, path, errors=(error,)) if action in ("retry", "backoff") else None
        open_s = seconds_of(entry["timeout"]) if entry.get("timeout") is not None else 60.0
        if open_s is None:
            self.state.error("bad_duration", "`timeout` is a duration such as 30s", (*path, "timeout"), value=True)
            open_s = 60.0
        return ErrorRule(
            error=error,
            action=action,
            answer=answer,
            compensation=compensation,
            retry=retry,
            threshold=self._count(entry, "threshold", path) or 5,
            open_s=open_s,
        )

    def _action(
        self, entry: dict[str, Any], path: Path, compensation: tuple[Step, ...], answer: ErrorAnswer | None
    ) -> str | None:
        action = entry.get("action")
        if action is None:
            action = "compensate" if compensation else "return_error" if answer else None
        if action not in ACTIONS:
            where = (*path, "action") if "action" in entry else path
            hint = close_to(str(action), ACTIONS)
            self.state.error("unknown_word", f"`action` is one of {', '.join(ACTIONS)}", where, hint=hint, value=True)
            return None
        if action == "compensate" and not compensation:
            self.state.error("missing_key", "`compensate` has no `compensation_steps`", path)
        if action == "map_to" and answer is None:
            self.state.error("missing_key", "`map_to` has no error code", path, hint="map_to: CODE")
        return str(action)

    def _answer(self, error: str, entry: dict[str, Any], path: Path, scope: NameScope) -> ErrorAnswer | None:
        answers = self.steps.answers
        for key in ("return_error", "map_to"):
            if entry.get(key) is not None:
                return answers.error_of(entry[key], (*path, key), scope)
        if entry.get("error_code") is not None:
            given = {key: entry[key] for key in ("error_code", "message") if key in entry}
            return answers.error_of(given, path, scope)
        if entry.get("action") != "return_error":
            return None
        fields = ()
        if error == "*":
            self.state.error("missing_key", "`return_error` for any error needs an `error_code`", path)
        if entry.get("message") is not None:
            message = self.steps.typing.value(entry["message"], (*path, "message"), scope)
            fields = (("message", message),)  # type: ignore[assignment]
        self.state.codes.add(error)
        return ErrorAnswer(Constant(type=STRING, value=error), fields)

    def retry(self, entry: Any, path: Path, *, errors: tuple[str, ...] = ("*",)) -> StepRetry | None:
        """Return a retry policy out of `retry_policy` or of a rule."""
        if not isinstance(entry, dict):
            self.state.error("wrong_form", "a retry policy is a mapping", path, value=True)
            return None
        attempts = self._count(entry, "max_attempts", path)
        if attempts == 0:
            message = "a step is tried at least once: `max_attempts` counts the first attempt"
            hint = "max_attempts: 1 tries once and never again"
            self.state.error("bad_value", message, (*path, "max_attempts"), hint=hint, value=True)
        retries = self._count(entry, "max_retries", path)
        count = attempts if attempts is not None else retries + 1 if retries is not None else 3
        backoff = entry.get("backoff", "exponential")
        if backoff not in _BACKOFFS:
            message = f"`backoff` is one of {', '.join(_BACKOFFS)}"
            self.state.error("unknown_word", message, (*path, "backoff"), value=True)
            backoff = "exponential"
        delay_key = "initial_delay" if "initial_delay" in entry else "retry_after"
        delay = seconds_of(entry[delay_key]) if entry.get(delay_key) is not None else 1.0
        if delay is None:
            self.state.error("bad_duration", f"`{delay_key}` is a duration such as 1s", (*path, delay_key), value=True)
            delay = 1.0
        base = self._count(entry, "backoff_base", path)
        return StepRetry(max(1, count), backoff, base or 2, initial_delay_s=delay, errors=errors)

    def _count(self, entry: dict[str, Any], key: str, path: Path) -> int | None:
        value = entry.get(key)
        if value is None:
            return None
        if isinstance(value, Decimal) or not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.state.error("bad_value", f"`{key}` is a whole number", (*path, key), value=True)
            return None
        if value > ATTEMPTS_MAX:
            self.state.error("limit", f"`{key}` is at most {ATTEMPTS_MAX}", (*path, key), value=True)
            return None
        return value

    def policy_of(self, step: StepDeclaration, rules: tuple[ErrorRule, ...]) -> StepRetry | None:
        """Return the step's retry policy, or that of its first rule with one, for the errors of all its rules with
        one."""
        setting: Setting | None = step.settings.get("retry_policy")
        retries = [rule.retry for rule in rules if rule.retry is not None]
        named = tuple(error for retry in retries for error in retry.errors)
        if setting is not None and setting.value is not None:
            if isinstance(setting.value, dict):
                self.state.judge_keys(setting.value, _RETRY_KEYS, setting.path)
            return self.retry(setting.value, setting.path, errors=tuple(dict.fromkeys(("*", *named))))
        return msgspec.structs.replace(retries[0], errors=named) if retries else None


def _error_of(entry: dict[str, Any]) -> str:
    return any_error(str(entry.get("error_type") or entry.get("error") or "*"))


def any_error(name: str) -> str:
    """Return the name of an error in a rule: `any` is another word for `*`."""
    return "*" if name == "any" else name
