"""How a turn ended, in the words of the protocol."""

from __future__ import annotations

from typing import Final

from acp import schema

# By the status of the result; a status that is not here is an error for the editor.
STOP_REASONS: Final[dict[str, schema.StopReason]] = {
    "success": "end_turn",
    "interrupted": "cancelled",
    "max_turns": "max_turn_requests",
    "max_iterations": "max_turn_requests",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
}
