"""Errors of Lyra as errors of the protocol: what went wrong and what to do, in the message that an editor shows."""

from __future__ import annotations

from typing import Final

from acp import RequestError, schema

from lyra.agents.acp.updates import shown_text
from lyra.core.secrets.redact import redact
from lyra.errors import LyraError

INVALID_REQUEST: Final = -32600
_INVALID_PARAMS: Final = -32602


def invalid(reason: str, code: int = _INVALID_PARAMS) -> RequestError:
    """The error for a request that cannot be served as it is."""
    words = shown_text(reason)
    return RequestError(code, words, {"reason": words})


def refusal(error: LyraError, code: int = _INVALID_PARAMS) -> RequestError:
    """The error for the editor. `reason` has the same words: some editors show one, some the other."""
    message = redact(error.message)
    words = shown_text(f"{message}\n{error.hint}" if error.hint else message)
    return RequestError(code, words, {"reason": words, "code": error.code})


# ---------------------------------------------------------------- stop reasons
# How a turn ended, in the words of the protocol.

# By the status of the result; a status that is not here is an error for the editor.
STOP_REASONS: Final[dict[str, schema.StopReason]] = {
    "success": "end_turn",
    "interrupted": "cancelled",
    "max_turns": "max_turn_requests",
    "max_iterations": "max_turn_requests",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
}
