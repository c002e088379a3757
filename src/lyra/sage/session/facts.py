"""SessionFacts: what a session remembers beside its conversation, as facts in its own store: turns, moves, settings.

A turn knows how many messages there were before it, and a move which messages it took away, so `messages_before` can
say what the conversation was before any turn, also after later undos and `clear`. A turn that was undone keeps its
number: no number is used twice. Never looks at files; `snapshots` does.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from lyra.core.message import Message
from lyra.errors import ConfigError


class SessionTurn(msgspec.Struct):
    """One message of a person and all that was done about it. `start` counts the messages before it."""

    number: int
    prompt: str
    began_at: float
    start: int
    status: str = "running"
    ended_at: float | None = None
    answer: str = ""
    model: str = ""
    cost_usd: float | None = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    files: list[str] = []
    undone: bool = False


class SessionMove(msgspec.Struct):
    """The conversation went on from another place. `turn`: the last turn that had begun by then."""

    reason: str
    turn: int
    keep: int
    dropped: list[dict[str, Any]] = []


class SessionFacts:
    """A State of the kernel: facts of the kinds `session.*`, folded."""

    NAME: ClassVar[str] = "session"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"session.turn_began", "session.turn_ended", "session.moved", "session.set"}
    )

    __slots__ = ("moves", "settings", "turns")

    def __init__(self) -> None:
        self.turns: list[SessionTurn] = []
        self.moves: list[SessionMove] = []
        self.settings: dict[str, Any] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        if kind == "session.turn_began":
            self.turns.append(SessionTurn(began_at=time, **data))
        elif kind == "session.turn_ended":
            turn = self.turn(data["number"])
            turn.ended_at = time
            for name, value in data.items():
                setattr(turn, name, value)
        elif kind == "session.moved":
            undone, redone = set(data.pop("undone", ())), set(data.pop("redone", ()))
            for turn in self.turns:
                turn.undone = (turn.undone or turn.number in undone) and turn.number not in redone
            self.moves.append(msgspec.convert(data, SessionMove))
        else:
            self.settings.update(data)

    def dump(self) -> Any:
        return {
            "turns": [msgspec.structs.asdict(turn) for turn in self.turns],
            "moves": [msgspec.structs.asdict(move) for move in self.moves],
            "settings": self.settings,
        }

    def load(self, data: Any) -> None:
        self.turns = msgspec.convert(data["turns"], list[SessionTurn])
        self.moves = msgspec.convert(data["moves"], list[SessionMove])
        self.settings = dict(data["settings"])

    # ------------------------------------------------------------------ reading

    @property
    def standing(self) -> list[SessionTurn]:
        """The turns that were not undone."""
        return [turn for turn in self.turns if not turn.undone]

    @property
    def last_number(self) -> int:
        return self.turns[-1].number if self.turns else 0

    def turn(self, number: int) -> SessionTurn:
        if not 1 <= number <= len(self.turns):
            known = f"turns 1 to {len(self.turns)}" if self.turns else "no turn yet"
            raise ConfigError(f"there is no turn {number}", hint=f"the session has {known}", key="turn")
        return self.turns[number - 1]

    def position(self, length: int) -> dict[str, Any]:
        """Where the conversation is now, with so many messages: `messages_at` finds back to it."""
        return {"moves": len(self.moves), "length": length, "turns": [turn.number for turn in self.standing]}

    def messages_at(self, position: dict[str, Any], messages: list[Message]) -> list[Message]:
        """The conversation at an earlier position, given the one of now."""
        return self._before_moves(position["moves"], messages)[: position["length"]]

    def _before_moves(self, count: int, messages: list[Message]) -> list[Message]:
        """The conversation before all moves but the first `count`; what came after the last of those is behind it."""
        before = list(messages)
        for move in reversed(self.moves[count:]):
            before = [*before[: move.keep], *(Message.from_data(message) for message in move.dropped)]
        return before

    def messages_before(self, number: int, messages: list[Message]) -> list[Message]:
        """The conversation before a turn, given the one of now."""
        turn = self.turn(number)
        earlier = sum(move.turn < number for move in self.moves)  # moves before the turn began
        return self._before_moves(earlier, messages)[: turn.start]
