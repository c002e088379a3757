"""Bugs in the calls that `@lyra.parallel` makes ahead of their turn: one for each rule of
`lyra.agents.parallel.rules.RULES`. `NO_SILENT_ERRORS` is no bug: with it tests see the errors of the look ahead itself.
"""

from __future__ import annotations

from typing import Final

from verify.planted.apply import Change

__all__ = ["BUGS", "NO_SILENT_ERRORS"]

_AHEAD: Final = "lyra.agents.session.early_call"
_BUDGET: Final = "lyra.core.budgets.early_budget"
_EARLY: Final = "lyra.agents.parallel.call"
_GROUP: Final = "lyra.agents.parallel.group"
_KEPT: Final = "lyra.agents.parallel.journal"
_SHADOW: Final = "lyra.agents.parallel.lookahead"
_WHOM: Final = "lyra.agents.parallel.targets"

BUGS: Final[dict[str, tuple[Change, ...]]] = {
    "ordered": (
        Change(
            _WHOM,
            "Question.why_not",
            "why = self._why_not_with(is_due=is_due)",
            "return '' if agent is not None else 'whom it asks is not known'",
        ),
    ),
    "delivery": (Change(_EARLY, "Early.here", "other is not None", "other is not None and other is not before"),),
    "cancelled": (
        Change(_GROUP, "Group._give_up", "call.task.cancel()", "None"),
        Change(_GROUP, "Group._ended", "not call.ahead.is_over", "False"),
    ),
    "take back": (Change(_GROUP, "Group._give_up", "call.take_back()", "None"),),
    "in place": (
        Change(
            _SHADOW,
            "Shadow._expr",
            "value = yield from self.value(node.value)",
            """
if isinstance(node.value, ast.Call) and not hasattr(node.value, SITE):
    return ""
value = yield from self.value(node.value)
""",
        ),
    ),
    "apart": (
        Change(_AHEAD, "Ahead.apart", "self.is_due", "True"),
        Change(_AHEAD, "Ahead.own", "self.is_due", "True"),
    ),
    "room": (
        Change(_BUDGET, "JoinableBudget.has_room", "self.is_joined or not is_limited(self.around)", "True"),
        Change(_AHEAD, "Ahead._is_hopeless", "any(call.has_failed for call in self._before())", "False"),
    ),
    "spend": (
        Change(
            _AHEAD,
            "Ahead.come",
            "all(scope.is_allowed() for scope in self._scopes) and self._learn()",
            "True",
        ),
        Change(_AHEAD, "Ahead.come", "scope.join()", "None"),
    ),
    "keys": (Change(_EARLY, "Early.run", "name_branch(program, self._key)", "None"),),
    "kept": (
        Change(
            _KEPT,
            "Kept.write",
            "journal.write(self._process.pid, 'effect.finished', rows.encode(row))",
            "None",
        ),
    ),
}

# An unexpected error of the look ahead ends it, and the program goes on without; with this change the error is raised.
NO_SILENT_ERRORS: Final = (Change(_GROUP, "Group.advance", "Exception", "()"),)
