"""Whether something belongs to the user who asks: one rule for processes, envelopes and questions.

A caller that names no user is the program around the kernel, and may do everything. A user may only act on what is
theirs; what belongs to no user is out of every user's reach.
"""

from __future__ import annotations

from lyra.core.checking.check import sendable_text, short_text
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import ConfigError, Denied


def checked_user(user_id: object) -> str:
    """The id of a user who asks; not empty."""
    text = short_text(sendable_text(user_id, "user_id"), "user_id", most=NAME_LENGTH_MAX)
    if not text:
        raise ConfigError("user_id is empty", hint="name the user who asks", key="user_id")
    return text


def check_owner(owner: str, user_id: str | None, what: str) -> None:
    """Raise Denied if a user asks for something of another user, or of none. The message does not name the owner."""
    if user_id is not None and owner != user_id:
        raise Denied(f"{what} is not {user_id}'s", hint="its owner may do this", user_id=user_id)
