"""A SessionRecord: what a list of sessions shows of one, without opening its store.

Owns the record's fields, its file `record.json` in the folder of the session, the form of session ids and the folder
itself. The record is written whole or not at all and is what a damaged index is rebuilt from. Texts in it are previews:
one line, keys redacted, escape sequences made visible. Never reads the store of a session. `index` keeps all records.
SessionFacts are what a session remembers of its turns, folded from its journal.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import msgspec

from lyra.config.files import write_private
from lyra.core.ids import Entropy
from lyra.core.message import Message
from lyra.core.own_files import make_folder
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import visible
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError

PREVIEW_LENGTH: Final = 100
RECORD_FILE: Final = "record.json"
_RECORD_BYTES_MAX: Final = 256 * 1024
_ID_FORM: Final = re.compile(r"[0-9]{8}-[0-9a-z]{6}\Z")
_ID_TRIES: Final = 100
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_SECONDS_OF_A_DAY: Final = 86_400


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`parent`: the id of the session that this one was forked from, or "". `cost_usd`: None where a price is unknown.
    Times are in seconds since 1970. Another version's further fields are ignored."""

    id: str
    folder: str
    title: str = ""
    model: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    turns: int = 0
    cost_usd: float | None = 0.0
    first_prompt: str = ""
    last_prompt: str = ""
    parent: str = ""
    state: Literal["active", "idle", "interrupted", "failed"] = "idle"
    mode: str = ""  # the permission mode that was chosen for it; "" where the permission files decide

    def __post_init__(self) -> None:
        for name in ("folder", "title", "first_prompt", "last_prompt"):
            text = getattr(self, name)
            if not text.isascii():
                msgspec.structs.force_setattr(self, name, storable(text))

    @property
    def label(self) -> str:
        """The words that a list shows for the session."""
        return self.title or self.first_prompt or self.id

    def with_prompt(self, prompt: str, *, now: float) -> SessionRecord:
        """Return the record after one more turn has begun with this prompt."""
        text = preview(prompt)
        return msgspec.structs.replace(
            self, turns=self.turns + 1, first_prompt=self.first_prompt or text, last_prompt=text, updated_at=now
        )


def storable(text: str) -> str:
    """Return the text with `?` in place of what cannot be written as UTF-8, such as a byte of a folder's name."""
    return text.encode("utf-8", "replace").decode()


def preview(text: str, length: int = PREVIEW_LENGTH) -> str:
    """Return the start of a text on one line, with keys redacted and escape sequences visible."""
    line = " ".join(redact(text[: 40 * length]).split())
    shown = visible(line)
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


def sessions_folder() -> Path:
    return data_folder() / "sessions"


def is_session_id(text: str) -> bool:
    return _ID_FORM.match(text) is not None


def new_session_id(now: float, entropy: Entropy) -> str:
    """`YYYYMMDD-xxxxxx`: the day in UTC, three characters for the time of the day (steps of 2.6 s) and three random
    ones, so that ids sort by the time they were made at."""
    day = datetime.fromtimestamp(now, UTC)
    step = int(now % _SECONDS_OF_A_DAY / _SECONDS_OF_A_DAY * 32**3)
    time_of_day = "".join(_ALPHABET[(step >> shift) & 31] for shift in (10, 5, 0))
    return f"{day:%Y%m%d}-{time_of_day}{entropy.text(3)}"


def make_session_folder(now: float, entropy: Entropy, root: Path | None = None) -> Path:
    """Make the folder of a new session, open to its owner alone; its name is the session's id. Two processes never get
    the same one."""
    sessions = root or sessions_folder()
    make_folder(sessions, private=True)
    for _ in range(_ID_TRIES):
        folder = sessions / new_session_id(now, entropy)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        folder.chmod(0o700)  # the umask may have removed a right of the owner
        return folder
    raise ConfigError(f"no free session id in {sessions}", place=str(sessions))


def write_record(folder: Path, record: SessionRecord) -> None:
    """Replace `record.json` in the session's folder in one step."""
    write_private(folder / RECORD_FILE, msgspec.json.encode(record))


def read_record(folder: Path) -> SessionRecord | None:
    """Return the record in a session's folder; None where it is missing, damaged, a link, or another session's."""
    try:
        fd = os.open(folder / RECORD_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            record = msgspec.json.decode(file.read(_RECORD_BYTES_MAX), type=SessionRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return record if record.id == folder.name else None


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
    """The conversation continued from another place. `turn`: the last turn that had begun by then."""

    reason: str
    turn: int
    keep: int
    dropped: list[dict[str, Any]] = []


class SessionFacts:
    """What a session remembers beside its conversation, as facts in its own store: turns, moves, settings. A State of
    the kernel: facts of the kinds `session.*`, folded."""

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
        """Return where the conversation is now, with so many messages: `messages_at` finds back to it."""
        return {"moves": len(self.moves), "length": length, "turns": [turn.number for turn in self.standing]}

    def messages_at(self, position: dict[str, Any], messages: list[Message]) -> list[Message]:
        """Return the conversation at an earlier position, given the one of now."""
        return self._before_moves(position["moves"], messages)[: position["length"]]

    def _before_moves(self, count: int, messages: list[Message]) -> list[Message]:
        """Return the conversation before all moves but the first `count`; what came after the last of those is behind
        it."""
        before = list(messages)
        for move in reversed(self.moves[count:]):
            before = [*before[: move.keep], *(Message.from_data(message) for message in move.dropped)]
        return before

    def messages_before(self, number: int, messages: list[Message]) -> list[Message]:
        """Return the conversation before a turn, given the one of now."""
        turn = self.turn(number)
        earlier = sum(move.turn < number for move in self.moves)  # moves before the turn began
        return self._before_moves(earlier, messages)[: turn.start]
