"""The rules that the calls of `@lyra.parallel` keep ahead of their turn, and a bug for each. `NO_SILENT_ERRORS` is no
bug: with it tests see the errors of the look ahead itself.
"""

from __future__ import annotations

from typing import Final

from lyra.core.budgets import early_calls
from verify.planted.apply import Change

__all__ = ["BUGS", "NO_SILENT_ERRORS", "RULES"]

RULES: Final[dict[str, str]] = {
    **early_calls.RULES,
    "take back": "a conversation forgets a turn that the program never came to",
    "in place": "code that may do anything runs in its place, and no call is made early across it",
    "apart": "the cost of an early call stays out of the budgets until the program comes to it",
    "keys": "an effect has the key of its place in the program, whenever it was made",
    "kept": "a journal keeps which calls the program has come to, and what they cost",
}

_EARLY_CALL: Final = "lyra.agents.session.early_call"
_BUDGET: Final = "lyra.core.budgets.early_calls"
_CALL: Final = "lyra.agents.parallel.call"
_GROUP: Final = "lyra.agents.parallel.group"
_JOURNAL: Final = "lyra.agents.parallel.group"
_LOOKAHEAD: Final = "lyra.agents.parallel.lookahead"
_TARGETS: Final = "lyra.agents.parallel.targets"

BUGS: Final[dict[str, tuple[Change, ...]]] = {
    "ordered": (
        Change(
            _TARGETS,
            "AgentCall.why_not",
            "why = self._why_not_with(is_due=is_due)",
            "return '' if agent is not None else 'whom it asks is not known'",
        ),
    ),
    "delivery": (
        Change(_CALL, "ParallelCall.ask_now", "other is not None", "other is not None and other is not before"),
    ),
    "cancelled": (
        Change(_GROUP, "CallGroup._give_up", "call.task.cancel()", "None"),
        Change(_GROUP, "CallGroup._wait_for_end", "not call.early_call.is_over", "False"),
    ),
    "take back": (Change(_GROUP, "CallGroup._give_up", "call.remove_turn()", "None"),),
    "in place": (
        Change(
            _LOOKAHEAD,
            "Lookahead._expr",
            "value = yield from self.value(node.value)",
            """
if isinstance(node.value, ast.Call) and not hasattr(node.value, SITE):
    return ""
value = yield from self.value(node.value)
""",
        ),
    ),
    "apart": (
        Change(_EARLY_CALL, "EarlyCall.scope_for", "self.is_due", "True"),
        Change(_EARLY_CALL, "EarlyCall.child_budget", "self.is_due", "True"),
    ),
    "room": (
        Change(_BUDGET, "EarlyBudget.has_room", "self.is_joined or not is_limited(self.around)", "True"),
        Change(_EARLY_CALL, "EarlyCall._follows_failure", "any(call.has_failed for call in self._before())", "False"),
    ),
    "spend": (
        Change(
            _EARLY_CALL,
            "EarlyCall.take_turn",
            "all(scope.is_allowed() for scope in self._scopes) and self._learn()",
            "True",
        ),
        Change(_EARLY_CALL, "EarlyCall.take_turn", "scope.join()", "None"),
    ),
    "keys": (Change(_CALL, "ParallelCall.run", "name_branch(program, self._key)", "None"),),
    "kept": (
        Change(
            _JOURNAL,
            "JournaledDecision.write",
            "journal.write(self._process.pid, 'effect.finished', rows.encode(row))",
            "None",
        ),
    ),
}

# An unexpected error of the look ahead ends it, and the program goes on without; with this change the error is raised.
NO_SILENT_ERRORS: Final = (Change(_GROUP, "CallGroup.advance", "Exception", "()"),)
