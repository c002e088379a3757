"""Notices: short messages for an agent's model that no caller sent, such as the end of work in the background.

A `NoticeSource` (`AgentRuntime.notices`, by pid) has notices until the agent's process has taken them: before its next
call of the model, in the middle of a turn or at the beginning of one. A notice alone starts no turn. The words are
those of the program, never text from outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class Notice(NamedTuple):
    """`key` names it: a source that is told of a key has that notice no more."""

    key: str
    text: str


class NoticeSource(Protocol):
    def waiting(self) -> list[Notice]:
        """The notices that were not taken yet."""
        ...

    def taken(self, keys: Iterable[str]) -> None:
        """The process has taken these; on a replay it takes them again, which must change nothing."""
        ...
