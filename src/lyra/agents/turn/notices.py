"""Puts waiting notices into the conversation, before the model is asked.

What was taken is a row of the process. A replay takes the same notices at the same call, and a crash in between loses
none: the row and what the source writes about it are in one batch of the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.core.message import Message
from lyra.kernel.process.call_keys import upcoming
from lyra.kernel.programs.journaled_call import read

if TYPE_CHECKING:
    from lyra.agents.turn.turn import Turn


NOTICES: Final = "notices"  # the row


def add_notices(turn: Turn) -> None:
    """Add one message with all notices that wait; nothing where none does."""
    process, source = turn.process, turn.runtime.notices.get(turn.ctx.pid)
    entry = upcoming(process)
    if entry is not None:
        if (entry.kind, entry.name) != ("read", NOTICES):  # then there were none
            return
    elif source is None or not source.waiting():
        return
    taken = read(process, NOTICES, lambda: [[*notice] for notice in source.waiting()] if source is not None else [])
    if source is not None:
        source.taken([key for key, _ in taken])
    turn.session.append(notice_message(taken))


def notice_message(taken: list[list[str]]) -> Message:
    """The message that the row of these notices stands for."""
    return Message("user", "\n".join(["(Notice by the program, not by the user.)", *(text for _, text in taken)]))
