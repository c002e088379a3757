"""A Script: the answers of the simulated model and their conditions. Written in a file (YAML, TOML, JSON) or in Python.

    seed: 7
    replies:
      - user: "weather in (\\w+)"                      # a regular expression, searched in the last user text
        tool_calls: [{name: weather, arguments: {city: "{1}"}}]
      - tool: weather                                  # the result of this tool came last
        text: "It is {result} in {1}."
      - text: "I do not know."                         # no condition: always fits

The first reply whose conditions all hold answers. Under `sequence` in place of `replies` each reply answers once, in
order. A reply that looks at the user's text fits only when the user spoke last, one that looks at a tool only when a
result came last: so the result of a tool does not trigger the reply that called it again. `{1}`, `{name}`, `{user}`,
`{result}` and `{turn}` in texts represent what was matched; other braces are left alone.

Owns the declaration and its checks: `Script`, `Reply`, `ScriptedCall`, `ScriptedError`, `load_script`. Every mistake of
a file has its line. The module `sim` plays a script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple, Self

import msgspec

from lyra.core.checking.check import check_integer, did_you_mean, one_of, real, short_text
from lyra.core.checking.document import Path, form_of, parse, place_of, text_of
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.own_files import add_own_path
from lyra.core.tool import check_tool_name
from lyra.errors import CheckError, ConfigError
from lyra.models.pricing import FREE, Price
from lyra.models.stream import STOP_REASONS
from lyra.models.wire.faults import KINDS

_TEXT_MAX: Final = 1 << 20
_REPLIES_MAX: Final = 10_000
_CHUNKS_MAX: Final = 1_000_000
_SECONDS_MAX: Final = 86_400.0
_PARSE: Final[dict[str, str]] = {"word": "a word at a time", "whole": "in one piece"}


class _Problem(NamedTuple):
    path: Path
    message: str
    hint: str | None


class _Checked(msgspec.Struct, frozen=True):
    """A declaration whose fields are read by the table `_READ`; a mistake is a ConfigError that names the key."""

    def __post_init__(self) -> None:
        for name, read in _READ[type(self)].items():
            value = getattr(self, name)
            if value is not None:
                try:
                    checked = read(value)
                except ConfigError as error:
                    place = f"{name}.{error.fields['key']}" if "key" in error.fields else name
                    raise ConfigError(f"{name}: {error.message}", hint=error.hint, key=place) from None
                msgspec.structs.force_setattr(self, name, checked)

    @classmethod
    def from_data(cls, data: Any) -> Self:
        problems: list[_Problem] = []
        declaration = _read(cls, data, (), problems)
        if problems:
            place = _join_path(problems[0].path)
            message = f"{place}: {problems[0].message}" if place else problems[0].message
            raise ConfigError(message, hint=problems[0].hint, key=place)
        return declaration  # type: ignore[no-any-return]  # an instance of cls


class ScriptedCall(_Checked, frozen=True):
    """A tool call to make; without an `id` it gets one."""

    name: str
    arguments: dict[str, Any] = {}
    id: str | None = None


class ScriptedError(_Checked, frozen=True):
    """A ModelError in place of an answer, or after some of it.

    `attempts` 2: the first two tries of the same request fail, the third is answered; None: all fail. `after_chunks` 3:
    three pieces are sent first.
    """

    kind: str
    message: str | None = None
    retry_after_s: float | None = None
    attempts: int | None = None
    after_chunks: int | None = None


class Reply(_Checked, frozen=True):
    """One answer and when it is given. `text` and its like may hold `{1}`, `{name}`, `{user}`, `{result}`, `{turn}`."""

    text: str = ""
    # conditions
    user: re.Pattern[str] | None = None  # searched in the last user text
    contains: str | None = None  # is in the last user text
    tool: str | None = None  # a result of this tool came last
    result: re.Pattern[str] | None = None  # searched in the results that came last
    system: re.Pattern[str] | None = None  # searched in the system prompt
    model: str | None = None  # asked for under this name
    turn: int | None = None  # 1: the first answer of the conversation
    times: int | None = None  # at most so often
    # the answer
    one_of: tuple[str, ...] | None = None  # texts to choose from, by the script's seed and the number of the call
    thinking: str | None = None
    tool_calls: tuple[ScriptedCall, ...] | None = None
    stop_reason: str | None = None
    usage: dict[str, int] | None = None  # counts that are not given are estimated
    error: ScriptedError | None = None
    # timing; None is the script's own
    chunks: str | int | None = None
    first_s: float | None = None
    chunk_s: float | None = None


class Script(_Checked, frozen=True):
    """Replies, tried in order, and how they are sent: `chunks` is `word`, `whole` or a number of characters."""

    replies: tuple[Reply, ...] | None = None
    sequence: tuple[Reply, ...] | None = None
    seed: int = 0
    chunks: str | int = "word"
    first_s: float = 0.0
    chunk_s: float = 0.0
    price: Price | None = FREE  # for budgets in tests without a network; `unknown` in a file is None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.replies is None) == (self.sequence is None):
            raise ConfigError("a script has either 'replies' or 'sequence'", key="replies")

    @property
    def all(self) -> tuple[Reply, ...]:
        """The replies in the order they are tried; those of a sequence answer once each."""
        if self.replies is not None:
            return self.replies
        return tuple(
            reply if reply.times is not None else msgspec.structs.replace(reply, times=1)
            for reply in self.sequence or ()
        )

    @classmethod
    def coerce(cls, value: Any) -> Script:
        """Return a Script, a mapping like a file's, a list of replies to give in order, or the path of a file."""
        if isinstance(value, Script):
            return value
        if isinstance(value, (str, FilePath)):
            return load_script(value)
        return cls.from_data({"sequence": value} if isinstance(value, (list, tuple)) else value)


def load_script(path: str | FilePath) -> Script:
    """Return the script of a file; its first mistake is raised with its place, the others are the error's `also`."""
    file = str(path)
    form = form_of(file, what="script")
    add_own_path(file)  # it decides what a model says, and with that what an agent does
    try:
        content = FilePath(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the script {path} cannot be read: {error.strerror}", key=file) from None
    data, places = parse(text_of(content, file), form, file)
    problems: list[_Problem] = []
    script = _read(Script, data, (), problems)
    if not problems:
        assert isinstance(script, Script)
        return script
    placed = sorted((*place_of(problem.path, places), problem.message, problem.hint or "") for problem in problems)
    line, column, message, hint = placed[0]
    also = [f"{file}:{row}:{col}: {text}" for row, col, text, _ in placed[1:]]
    raise CheckError(message, file=file, line=line, column=column, hint=hint or None, also=also)


# ---------------------------------------------------------------- how each key is read
def _text(value: Any) -> str:
    return short_text(value, "a text", most=_TEXT_MAX)


def _pattern(value: Any) -> re.Pattern[str]:
    if isinstance(value, re.Pattern):
        return value
    try:
        return re.compile(_text(value))
    except re.error as error:
        raise ConfigError(
            f"{value!r} is no regular expression: {error}", hint="use 'contains' for plain text"
        ) from None


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ConfigError(f"one_of is a list of texts, not {value!r}")
    return tuple(_text(item) for item in value)


def _chunks(value: Any) -> str | int:
    return one_of(value, _PARSE, "chunks") if isinstance(value, str) else check_integer(value, "chunks", least=1)


def _seconds(value: Any) -> float:
    return real(value, "seconds", most=_SECONDS_MAX)


def _count(least: int) -> Callable[[Any], int]:
    return lambda value: check_integer(value, "a count", least=least, most=_CHUNKS_MAX)


def _usage(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"usage is a mapping of token counts, not {value!r}")
    return {one_of(key, _USAGE, "usage"): check_integer(count, str(key)) for key, count in value.items()}


_USAGE: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def _arguments(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"arguments are a mapping of names to values, not {value!r}")
    return dict(value)


def _price(value: Any) -> Price | None:
    if value is None or value == "unknown":
        return None
    return value if isinstance(value, Price) else Price.from_data(value)


def _many(cls: type[_Checked]) -> Callable[[Any], Any]:
    return lambda value: tuple(item if isinstance(item, cls) else cls.from_data(item) for item in _items(value))


def _items(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) > _REPLIES_MAX:
        raise ConfigError(f"a list of at most {_REPLIES_MAX} was expected, not {type(value).__name__}")
    return value


def _reader_of(cls: type[_Checked]) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, cls) else cls.from_data(value)


def _word(table: Mapping[str, str], what: str) -> Callable[[Any], str]:
    return lambda value: one_of(value, table, what)


_READ: Final[dict[type, dict[str, Callable[[Any], Any]]]] = {
    ScriptedCall: {
        "name": check_tool_name,
        "arguments": _arguments,
        "id": lambda value: short_text(value, "an id", most=NAME_LENGTH_MAX),
    },
    ScriptedError: {
        "kind": _word(KINDS, "kind"),
        "message": _text,
        "retry_after_s": _seconds,
        "attempts": _count(1),
        "after_chunks": _count(0),
    },
    Reply: {
        "text": _text,
        "user": _pattern,
        "contains": _text,
        "tool": check_tool_name,
        "result": _pattern,
        "system": _pattern,
        "model": _text,
        "turn": _count(1),
        "times": _count(1),
        "one_of": _texts,
        "thinking": _text,
        "tool_calls": _many(ScriptedCall),
        "stop_reason": _word(STOP_REASONS, "stop_reason"),
        "usage": _usage,
        "error": _reader_of(ScriptedError),
        "chunks": _chunks,
        "first_s": _seconds,
        "chunk_s": _seconds,
    },
    Script: {
        "replies": _many(Reply),
        "sequence": _many(Reply),
        "seed": lambda value: check_integer(value, "seed", least=-(2**62), most=2**62),
        "chunks": _chunks,
        "first_s": _seconds,
        "chunk_s": _seconds,
        "price": _price,
    },
}
_PARTS: Final[dict[tuple[type, str], type[_Checked]]] = {
    (Script, "replies"): Reply,
    (Script, "sequence"): Reply,
    (Reply, "tool_calls"): ScriptedCall,
    (Reply, "error"): ScriptedError,
}
_WORDS: Final[dict[type, str]] = {
    Script: "a script",
    Reply: "a reply",
    ScriptedCall: "a tool call",
    ScriptedError: "an error",
}


def _read(cls: type[_Checked], data: Any, path: Path, problems: list[_Problem]) -> Any:
    """Return a declaration out of plain data; mistakes are added to `problems`, each with its path."""
    before = len(problems)
    if isinstance(data, cls):
        return data
    if cls is Reply and isinstance(data, str):  # a text is a reply
        data = {"text": data}
    if not isinstance(data, Mapping):
        given = repr(data) if isinstance(data, (int, float, bool)) else f"a {type(data).__name__}"
        hint = "write `replies:` above the list" if cls is Script and isinstance(data, list) else None
        problems.append(_Problem(path, f"{_WORDS[cls]} is a mapping, not {given}", hint))
        return None
    values = {}
    for key, value in data.items():
        if key not in _READ[cls]:
            problems.append(_unknown(cls, key, (*path, key)))
        elif value is not None:
            values[key] = _value(cls, key, value, (*path, key), problems)
    if len(problems) > before:
        return None
    try:
        return cls(**values)
    except TypeError:
        missing = [name for name in cls.__struct_fields__[: _count_required(cls)] if name not in values]
        problems.append(_Problem(path, f"{_WORDS[cls]} has a {missing[0]!r}", None))
    except ConfigError as error:
        problems.append(_Problem(path, error.message, error.hint))
    return None


def _value(cls: type[_Checked], key: str, value: Any, path: Path, problems: list[_Problem]) -> Any:
    part = _PARTS.get((cls, key))
    try:
        if part is None:
            return _READ[cls][key](value)
        if key in ("replies", "sequence", "tool_calls"):
            return tuple(_read(part, item, (*path, index), problems) for index, item in enumerate(_items(value)))
        return _read(part, value, path, problems)
    except ConfigError as error:
        inner = error.fields.get("key")
        known = isinstance(value, Mapping) and inner in value
        problems.append(_Problem((*path, str(inner)) if known else path, error.message, error.hint))
        return None


def _unknown(cls: type[_Checked], key: Any, path: Path) -> _Problem:
    known = cls.__struct_fields__
    near = did_you_mean(str(key), known)
    hint = f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}"
    return _Problem(path, f"{_WORDS[cls]} has no setting {str(key)!r}", hint)


def _count_required(cls: type[_Checked]) -> int:
    return len(cls.__struct_fields__) - len(cls.__struct_defaults__)


def _join_path(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
