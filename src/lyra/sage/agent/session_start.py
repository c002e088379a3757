"""How a session begins: anew, resumed or as a copy; and its conversation, read from its store without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from lyra.agents.headless.headless import HeadlessOptions
from lyra.agents.turn.unfinished import read_agent
from lyra.core.message import Message
from lyra.sage.agent.equipment import AGENT
from lyra.sage.session.facts import SessionFacts
from lyra.sage.session.record import SessionRecord
from lyra.store import open_store
from lyra.tools.permissions.decision import MODES

STORE_FILE: Final = "session.db"
NOT_KEPT: Final = "bypass"  # a mode that has to be asked for in each run


class SessionStart(msgspec.Struct, frozen=True, kw_only=True):
    """How a session begins: anew, as the newest one of the folder, as one with this id, or as a copy of it."""

    resume: str | None = None  # an id or the beginning of one; "" is the newest session of the folder
    fork: bool = False
    before_turn: int | None = None  # of a fork: the conversation before this turn
    title: str = ""
    root: str = ""  # the folder of all sessions; empty: in the user's data folder


def with_kept_mode(options: HeadlessOptions, record: SessionRecord) -> HeadlessOptions:
    """The options with the permission mode that was chosen for the session, unless they name one.

    `bypass` is not kept: calls without a question are allowed only where this run was told so."""
    if options.mode is not None or record.mode in ("", NOT_KEPT) or record.mode not in MODES:
        return options
    return msgspec.structs.replace(options, mode=record.mode)


def read_session(folder: Path) -> tuple[list[Message], SessionFacts]:
    """The conversation and the facts of a session, read from its store without running it."""
    facts = SessionFacts()
    store = open_store(str(folder / STORE_FILE))
    try:
        stored = read_agent(store, AGENT, [facts])
    finally:
        store.close()
    messages = list(stored.messages)
    if stored.unfinished is not None:
        messages += [stored.unfinished.question, *stored.unfinished.messages]
    return messages, facts
