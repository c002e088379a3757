"""Events about decisions on calls: `tool.decided` for each decision, `tool.refused` for a call that was not made.

The audit log is made of them. What is decided, and by what, is `admission`; nothing is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.agents.turn.approval import arguments_as_json
from lyra.core.tool import ToolCall, error_code
from lyra.errors import ApprovalRefused, Denied, LyraError
from lyra.tools.permissions.subjects import facts_of

if TYPE_CHECKING:
    from lyra.agents.session.shared import AgentRuntime
    from lyra.kernel.process.process import Process


UNANSWERED: Final = "unanswered"  # in a row: denied because no person can be asked, so hooks may answer
_OWN_KEYS: Final = ("linked", "arguments", UNANSWERED)  # of a row, which only `admission` reads
_EVENT_CHARS_MAX: Final = 10_000


def publish(runtime: AgentRuntime, process: Process, call: ToolCall, row: dict[str, Any]) -> None:
    kernel = runtime.kernel
    if kernel.listeners.hears("tool.decided"):
        data = {"tool": call.name, **row, "subject": row["subject"][:_EVENT_CHARS_MAX]}
        for key in _OWN_KEYS:
            data.pop(key, None)
        kernel.publish(process.known_as, "tool.decided", data)
        kernel.raise_if_failed()  # an audit log that was asked for could not be written


def refused(runtime: AgentRuntime, process: Process, call: ToolCall, error: Exception) -> None:
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
