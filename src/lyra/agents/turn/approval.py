"""The question about a call, as a person reads it, and what their answer comes to.

Shows the exact subject, every character visible, why it is asked and what an `always` would cover. An answer that is
not clearly a yes is a no. The question itself is asked by `admission`, and by `callbacks` for an MCP server.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.secrets.visible import visible
from lyra.core.tool import ToolCall, error_code
from lyra.errors import ApprovalRefused, ConfigError, Denied, LyraError
from lyra.tools.permissions.decision import ANSWERS, Permissions
from lyra.tools.permissions.rules import Rule
from lyra.tools.permissions.subjects import facts_of, to_canonical_json

if TYPE_CHECKING:
    from lyra.agents.session.replies import Sink
    from lyra.agents.session.shared import AgentRuntime
    from lyra.agents.turn.admission import Case
    from lyra.kernel.interrupts.interrupt import Answer
    from lyra.kernel.process.process import Process


_log: Final = logging.getLogger("lyra.agents")
_REST_CHARS_MAX: Final = 4_000  # of the other arguments
_BLANKS: Final = re.compile(" {40,}")


def arguments_as_json(arguments: dict[str, Any]) -> str:
    return to_canonical_json(arguments) or msgspec.json.encode(arguments, enc_hook=str, order="sorted").decode()


def visible_text(text: str) -> str:
    """Text for a person: every character visible, and a long run of blanks, which could push the rest out of sight, as
    its length."""
    return _BLANKS.sub(lambda run: f"⟨{len(run[0])} blanks⟩", visible(text))


def caller_sink(runtime: AgentRuntime, process: Process) -> Sink | None:
    """Return the stream of the nearest agent above a helper: a helper's question is shown where its caller is read."""
    parent = process.parent
    while parent is not None:
        session = runtime.sessions.get(parent.pid)
        if session is not None and session.sink is not None:
            return session.sink
        parent = parent.parent
    return None


def reason_text(case: Case, row: dict[str, Any]) -> str:
    """Return what a person has to know besides the subject: why it is asked, the other arguments, what `always`
    covers."""
    parts = [f"Asked because {row['reason']}."]
    if row["tainted"]:
        parts.append("The agent has read text from outside, which may have told it to do this.")
    about = facts_of(case.tool.name).argument
    rest = {key: value for key, value in case.call.arguments.items() if key != about}
    if case.subject.kind in ("command", "path", "url") and rest:
        text = visible_text(case.runtime.clean(_short_first(rest)))
        more = f" … {len(text) - _REST_CHARS_MAX} characters more" if len(text) > _REST_CHARS_MAX else ""
        parts.append(f"With {text[:_REST_CHARS_MAX]}{more}")
    parts.append(f"Answer allow or deny{_describe_lasting_answers(case)}.")
    return "\n".join(parts)


def _describe_lasting_answers(case: Case) -> str:
    """Return what an answer of `always` and of `never` would cover."""
    rules = [case.permissions.rule_for(case.subject, answer) for answer in ("always", "never")]
    always, never = (visible(case.runtime.clean(rule)) if rule is not None else "" for rule in rules)
    if always == never:
        return f", and always or never for {always}" if always else ""
    covered = [f"{answer} for {rule}" for answer, rule in (("always", always), ("never", never)) if rule]
    return f", {' and '.join(covered)}"


def about_call(case: Case, row: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a call as data, for a screen that shows them in its own way."""
    always = case.permissions.rule_for(case.subject, "always")
    return {
        "call_id": case.call.id,
        "tool": case.call.name,
        "arguments": case.runtime.clean_data(case.call.arguments),
        "rule": row["rule"],
        "reason": row["reason"],
        "always": None if always is None else visible(case.runtime.clean(always)),
        "rules": [visible(case.runtime.clean(rule)) for rule in case.permissions.rules_for(case.subject)],
    }


def _short_first(arguments: dict[str, Any]) -> str:
    """Return the arguments as JSON, the longest last: where the text is cut, no short argument is lost."""
    parts = sorted((arguments_as_json({name: value})[1:-1] for name, value in arguments.items()), key=len)
    return "{" + ",".join(parts) + "}"


def answer_to_row(
    case: Case, row: dict[str, Any], answer: Answer, *, keep: Callable[[str, Callable[[], object]], object]
) -> dict[str, Any]:
    """Return the row of the decision that a person's answer means. `keep` is given an answer for always: the text of
    its rule, and a function that saves it."""
    word = _word(answer)
    if word in ("always", "never"):
        try:
            wider = _find_chosen_rule(case, answer.text) if word == "always" else ""
            rule = case.permissions.answer(case.subject, word, wider=wider)
            for outer in case.session.outer:  # otherwise the caller's rule would ask again
                outer.answer(case.subject, word, wider=wider)
        except ConfigError:  # no rule can express it: the answer holds for this call
            rule = None
        if rule is not None:
            keep(case.runtime.clean(rule.text), lambda: _keep(case.permissions, rule))
    allowed = word in ("allow", "always")
    edited = answer.data.get("arguments") if allowed and isinstance(answer.data, dict) else None
    comment = f": {case.runtime.clean(answer.text)}" if answer.text and not allowed else ""
    return {
        **row,
        "decision": "allow" if allowed else "deny",
        "reason": f"a person was asked and answered {word}{comment}",
        "source": "answer",
        **({"arguments": edited} if isinstance(edited, dict) else {}),
    }


def _find_chosen_rule(case: Case, text: str) -> str:
    """Return the rule that a person has chosen by its text; empty where it is none of those that were offered."""
    rules = case.permissions.rules_for(case.subject)
    return next((rule for rule in rules if visible(case.runtime.clean(rule)) == text.strip()), "")


def _word(answer: Answer) -> str:
    """Return the word of an answer; one that is not clearly a yes is a no."""
    word = answer.decision.strip().lower()
    if not word and answer.approved is not None:
        word = "allow" if answer.approved else "deny"
    if word not in ANSWERS or (answer.approved is False and word in ("allow", "always")):
        return "deny"
    return word


def _keep(permissions: Permissions, rule: Rule) -> None:
    """Save the rule of an answer. If that fails, the answer still holds for this kernel, so the call continues."""
    try:
        permissions.keep(rule)
    except (OSError, LyraError) as error:
        _log.warning("the answer for %s could not be kept: %s", visible(rule.text)[:200], error)


# Events about decisions on calls: `tool.decided` for each decision, `tool.refused` for a call that was not made.

UNANSWERED: Final = "unanswered"  # in a row: denied because no person can be asked, so hooks may answer
OWN_TEXT: Final = "own"  # in a row: what comes out is text of the user's own project
_OWN_KEYS: Final = ("linked", "arguments", UNANSWERED, OWN_TEXT)  # of a row, which only `admission` reads
_EVENT_CHARS_MAX: Final = 10_000


def publish(runtime: AgentRuntime, process: Process, call: ToolCall, row: dict[str, Any]) -> None:
    kernel = runtime.kernel
    if kernel.listeners.hears("tool.decided"):
        data = {"tool": call.name, **row, "subject": row["subject"][:_EVENT_CHARS_MAX]}
        for key in _OWN_KEYS:
            data.pop(key, None)
        kernel.publish(process.known_as, "tool.decided", data)
        kernel.raise_if_failed()  # an audit log that was asked for could not be written


def publish_refusal(runtime: AgentRuntime, process: Process, call: ToolCall, error: Exception) -> None:
    """Publish that the Grant, the workspace or the guard of network addresses refused a call."""
    kernel = runtime.kernel
    if isinstance(error, ApprovalRefused) or not kernel.listeners.hears("tool.refused"):
        return
    if isinstance(error, Denied) or error_code(error) == "permission_denied":
        code = error.code if isinstance(error, LyraError) else "permission_denied"
        about = call.arguments.get(facts_of(call.name).argument)
        subject = about if isinstance(about, str) else arguments_as_json(call.arguments)
        data = {
            "tool": call.name,
            "subject": runtime.clean(subject)[:_EVENT_CHARS_MAX],
            "code": code,
            "reason": runtime.clean(str(error)),
        }
        kernel.publish(process.known_as, "tool.refused", data)
