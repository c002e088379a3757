"""The question about a call, as a person reads it, and what their answer comes to.

Shows the exact thing, every character visible, why it is asked and what an `always` would cover. Whatever is not
clearly a yes is a no. Asks nobody itself: `admit` does, and `asked_back` for those who ask back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError
from lyra.tools.permissions.decision import ANSWERS, Permissions
from lyra.tools.permissions.rules import Rule
from lyra.tools.permissions.subjects import facts_of, whole_of

if TYPE_CHECKING:
    from lyra.agents.session.replies import Sink
    from lyra.agents.session.shared import Runtime
    from lyra.agents.turn.admission import Case
    from lyra.kernel.interrupts.interrupt import Answer
    from lyra.kernel.process.process import Process

__all__ = ["above", "answered", "as_json", "seen", "why"]

_log: Final = logging.getLogger("lyra.agents")
_REST_CHARS_MAX: Final = 4_000  # of the other arguments
_BLANKS: Final = re.compile(" {40,}")


def as_json(arguments: dict[str, Any]) -> str:
    return whole_of(arguments) or msgspec.json.encode(arguments, enc_hook=str, order="sorted").decode()


def seen(text: str) -> str:
    """For a person: every character visible, and a run of blanks, which could push the rest out of sight, as its
    length."""
    return _BLANKS.sub(lambda run: f"⟨{len(run[0])} blanks⟩", visible(text))


def above(runtime: Runtime, process: Process) -> Sink | None:
    """A helper's question is heard where its caller is."""
    above = process.parent
    while above is not None:
        session = runtime.sessions.get(above.pid)
        if session is not None and session.sink is not None:
            return session.sink
        above = above.parent
    return None


def why(case: Case, row: dict[str, Any]) -> str:
    """What a person has to know besides: why, with what else, and what an `always` would cover."""
    parts = [f"Asked because {row['reason']}."]
    if row["tainted"]:
        parts.append("The agent has read text from outside, which may have told it to do this.")
    about = facts_of(case.tool.name).argument
    rest = {key: value for key, value in case.call.arguments.items() if key != about}
    if case.subject.kind in ("command", "path", "url") and rest:
        said = seen(case.runtime.clean(_short_first(rest)))
        more = f" … {len(said) - _REST_CHARS_MAX} characters more" if len(said) > _REST_CHARS_MAX else ""
        parts.append(f"With {said[:_REST_CHARS_MAX]}{more}")
    rule = case.permissions.rule_for(case.subject)
    kept = f", and always or never for {visible(case.runtime.clean(rule))}" if rule is not None else ""
    parts.append(f"Answer allow or deny{kept}.")
    return "\n".join(parts)


def _short_first(arguments: dict[str, Any]) -> str:
    """As JSON, the longest last: where it is cut, nothing short is lost behind it."""
    each = sorted((as_json({name: value})[1:-1] for name, value in arguments.items()), key=len)
    return "{" + ",".join(each) + "}"


def answered(
    case: Case, row: dict[str, Any], answer: Answer, *, keep: Callable[[str, Callable[[], object]], object]
) -> dict[str, Any]:
    """The decision that an answer comes to; an answer for always is handed to `keep`, as its text and what keeps it."""
    word = _word(answer)
    if word in ("always", "never"):
        try:
            rule = case.permissions.answer(case.subject, word)
            for outer in case.session.outer:  # else its rule would ask again
                outer.answer(case.subject, word)
        except ConfigError:  # what cannot be a rule is answered for this once
            rule = None
        if rule is not None:
            keep(case.runtime.clean(rule.text), lambda: _keep(case.permissions, rule))
    allowed = word in ("allow", "always")
    said = f": {case.runtime.clean(answer.text)}" if answer.text and not allowed else ""
    return {
        **row,
        "decision": "allow" if allowed else "deny",
        "reason": f"a person was asked and answered {word}{said}",
        "source": "answer",
    }


def _word(answer: Answer) -> str:
    """What was answered; whatever is not clearly a yes is a no."""
    word = answer.decision.strip().lower()
    if not word and answer.approved is not None:
        word = "allow" if answer.approved else "deny"
    if word not in ANSWERS or (answer.approved is False and word in ("allow", "always")):
        return "deny"
    return word


def _keep(permissions: Permissions, rule: Rule) -> None:
    """The answer holds for this kernel in any case; that it could not be kept for the next is no reason to stop."""
    try:
        permissions.keep(rule)
    except (OSError, LyraError) as error:
        _log.warning("the answer for %s could not be kept: %s", visible(rule.text)[:200], error)
