"""TravelStep: one thing in a run that a person would point at, numbered in the order of their beginning.

Each stack adds to it what it knows: `RunStep` here, for the journal of a process, is a message, a model call, a tool
call or another effect, a child that was started or started again, a question to a person, a pause, a finished turn, an
end. It has short texts and no whole values; `timeline.StepFold` makes them from rows. Effects of a Vega program are
`vega.replay.timeline.TimelineStep`, steps of a Vesper node `vesper.runtime.replaying.ReplayedStep`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, Generic, TypeVar

import msgspec

from lyra.core import codec
from lyra.core.codec import to_plain
from lyra.core.naming import SUPERVISE, VEGA_AGENT, VEGA_PROCESS, to_fixed_name

STEP_KINDS: Final[dict[str, str]] = {
    "began": "the process began",
    "message": "a message was taken from the mailbox",
    "sent": "a message was sent",
    "signal": "the kernel told of another process",
    "model": "a model was asked",
    "tool": "a tool was called",
    "effect": "an effect was performed",
    "spawn": "a child was started",
    "restart": "a supervisor started a child again",
    "wait": "the end of a child was waited for",
    "sleep": "a pause began",
    "question": "a person was asked",
    "turn": "a turn of a conversation ended",
    "milestone": "a stretch of the program ended",
    "checkpoint": "the program saved its state",
    "shared": "a value was written where others read it",
    "note": "something about the run itself",
    "stopping": "the process was told to end",
    "crash": "a process ended with an error",
    "exit": "a process ended",
}


class TravelStep(msgspec.Struct, omit_defaults=True):
    """One step of any run: of processes, of a Vega program, of a Vesper node. `seq` is the row of a journal that it
    began with; `is_recorded` marks a step that a fork took over from the run that it was forked from: it was not
    performed here, and `usage` is what it cost there."""

    number: int = 0
    seq: int = 0
    pid: str = ""
    kind: str = ""
    what: str = ""
    began_at: float = 0.0
    ended_at: float | None = None
    agent: str = ""
    request: str = ""
    result: str = ""
    error: str = ""
    usage: dict[str, int] = {}
    is_recorded: bool = False

    @property
    def micro_usd(self) -> int:
        return self.usage.get("usd", 0)

    @property
    def tokens(self) -> int:
        return token_count(self.usage)

    @property
    def latency_ms(self) -> int | None:
        return None if self.ended_at is None else max(0, round((self.ended_at - self.began_at) * 1000))

    def to_data(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.__struct_fields__},
            "latency_ms": self.latency_ms,
            "cost_usd": self.micro_usd / 1_000_000,
        }


def token_count(usage: Mapping[str, int]) -> int:
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)


class RunStep(TravelStep):
    """A step from the rows of a journal; `end_seq` is the row of its end."""

    status: str = "ok"  # ok, running, waiting, or the code of its error
    end_seq: int = 0
    key: str = ""
    name: str = ""
    model: str = ""
    child: str = ""
    tries: int = 1
    is_inside: bool = False  # a tool that takes `ctx`: a part of the program, whose acts are steps of their own
    digest: str = ""  # of the whole values, where the texts here are cut


# How a step tells what a process was started with, where its arguments are those of Lyra's own programs.

_CHILDREN_TOLD: Final = 8


def vega_name(pid: str, program: str, arguments: Any) -> str:
    """Return what a person calls a process of a Vega run; "" for any other."""
    if program == VEGA_PROCESS:
        return f"process {pid}"
    if program == VEGA_AGENT and isinstance(arguments, list) and len(arguments) > 1:
        return f"agent {arguments[1]}"
    return ""


def start_words(program: str, arguments: Any, text: str) -> str:
    """Return the arguments of a process in words; `text` is their short text, which others keep."""
    if not isinstance(arguments, list):
        return text
    if not arguments:
        return ""
    if program in (VEGA_PROCESS, VEGA_AGENT):
        return brief(arguments[-1]) if arguments[-1] is not None else ""
    plan = arguments[0]
    children = plan.get("children") if program == SUPERVISE and isinstance(plan, Mapping) else None
    if not isinstance(children, list) or not all(isinstance(child, Mapping) for child in children):
        return text
    told = [_child(child) for child in children[:_CHILDREN_TOLD]]
    more = [f"{len(children) - len(told)} more"] if len(children) > len(told) else []
    return brief(f"of {', '.join([*told, *more])}") if children else ""


def _child(child: Mapping[str, Any]) -> str:
    name = vega_name(str(child.get("id", "")), to_fixed_name(str(child.get("program", ""))), child.get("args"))
    return name or str(child.get("id", ""))


# What messages, errors and ends say to a person, from the values that rows have.

_ASK: Final = "lyra.ask"  # the key of a question to a conversation
_ORDERS: Final = {"lyra.revise": "the conversation is revised", "lyra.compact": "the conversation is summed up"}


def message_text(message: Any) -> Any:
    """Return what a message says: the content of a question to a conversation, an order about it in words, else
    itself."""
    if isinstance(message, Mapping) and _ASK in message:
        content = message.get("content")
        if isinstance(content, Mapping):
            return next((words for order, words in _ORDERS.items() if order in content), content)
        return text_of_content(content)
    return message


def last_answer(value: Any) -> str:
    messages = value.get("messages") if isinstance(value, Mapping) else None
    last = messages[-1] if isinstance(messages, list) and messages else {}
    return text_of_content(last.get("content")) if isinstance(last, Mapping) else ""


def error_text(error: Mapping[str, Any]) -> str:
    kind = error.get("type")
    return f"{kind}: {error.get('message', '')}" if kind else str(error.get("message") or error.get("code") or "")


def answer_of(row: Mapping[str, Any]) -> Any:
    """Return what a person answered: what was said, and not when."""
    response = row.get("response")
    if not isinstance(response, Mapping):
        return response
    return {name: value for name, value in response.items() if name != "received_at" and value not in (None, "")}


def ending_text(end: Mapping[str, Any]) -> Any:
    """Return how a child ended that was waited for: its result, or why it has none."""
    error = end["error"]
    if end["reason"] == "normal" and error is None:
        return end["result"]
    return f"ended {end['reason']}" + (f": {error_text(error)}" if isinstance(error, Mapping) else "")


# Tool calls that have begun and have no result yet, as the rows of a run tell them.

Item = TypeVar("Item")

_TOOL: Final = "tool:"
_OUTPUT: Final = ("read", "output")  # the form and the name of the row of a result


class OpenCalls(Generic[Item]):
    """What a reader keeps of each open call, by the process and the branch of it that the call runs in."""

    __slots__ = ("_items", "_may_run_inside")

    def __init__(self) -> None:
        self._may_run_inside: set[tuple[str, str]] = set()
        self._items: dict[tuple[str, str], Item] = {}

    def begin(self, pid: str, row: Mapping[str, Any]) -> None:
        """Note that an effect began: that of a tool inside the program may be repeated."""
        if str(row.get("name", "")).startswith(_TOOL) and row.get("idempotent"):
            self._may_run_inside.add((pid, str(row.get("key"))))

    def is_admitted(self, pid: str, row: Mapping[str, Any]) -> bool:
        """Return whether the end of an effect only lets a tool begin."""
        place = (pid, str(row.get("key")))
        if place not in self._may_run_inside:
            return False
        self._may_run_inside.discard(place)
        return row.get("value") is None and not row.get("blob") and not row.get("error")

    def put(self, pid: str, row: Mapping[str, Any], item: Item) -> None:
        self._items[pid, _branch(row)] = item

    def take(self, pid: str, row: Mapping[str, Any]) -> Item | None:
        """Return the call whose result this row is; None where it is another row."""
        if (row.get("form"), row.get("name")) != _OUTPUT:
            return None
        return self._items.pop((pid, _branch(row)), None)

    def take_all(self, pid: str) -> list[Item]:
        """All calls of a process: they are over."""
        places = [place for place in self._items if place[0] == pid]
        return [self._items.pop(place) for place in places]


def _branch(row: Mapping[str, Any]) -> str:
    return str(row.get("key")).rpartition("/")[0]


# Values of journal rows as people and JSON can have them: plain, short, and bounded in size.

_DEPTH_MAX: Final = 24
_ITEMS_MAX: Final = 200
_TEXT_MAX: Final = 20_000
_BYTES_SHOWN: Final = 96
_NUMBERED: Final = re.compile(rb"\bp[0-9]+x*\b")  # pids that a kernel gave
_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode


def shorten(value: Any, *, text_max: int = _TEXT_MAX, depth: int = 0) -> Any:
    """Return the value as JSON has it; long texts, long lists and deep nesting are cut, and say so."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, int):
        return value if -(2**53) < value < 2**53 else str(value)
    if isinstance(value, str):
        return value if len(value) <= text_max else f"{value[:text_max]}… ({len(value)} characters)"
    if isinstance(value, (bytes, bytearray)):
        shown = base64.b64encode(value[:_BYTES_SHOWN]).decode()
        return shown if len(value) <= _BYTES_SHOWN else f"{shown}… ({len(value)} bytes)"
    if depth >= _DEPTH_MAX:
        return "…"
    if isinstance(value, Mapping):
        items = list(value.items())
        shown_items = {str(key): shorten(item, text_max=text_max, depth=depth + 1) for key, item in items[:_ITEMS_MAX]}
        return shown_items if len(items) <= _ITEMS_MAX else {**shown_items, "…": f"{len(items)} entries"}
    if isinstance(value, (list, tuple)):
        shown_list = [shorten(item, text_max=text_max, depth=depth + 1) for item in value[:_ITEMS_MAX]]
        return shown_list if len(value) <= _ITEMS_MAX else [*shown_list, f"… ({len(value)} items)"]
    return str(value)[:text_max]


def brief(value: Any, limit: int = 160) -> str:
    """Return the value on one line of at most `limit` characters."""
    if isinstance(value, str):
        text = value[: limit * 4]
    else:
        text = _encode(shorten(value, text_max=limit)).decode()
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def digest_of(value: Any, places: Mapping[str, str], before: str = "") -> str:
    """Return a digest of the whole value, behind another; `places` has what represents the pids of a run."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else _encode_state(value)
    named = _NUMBERED.sub(lambda match: places.get(match[0].decode(), match[0].decode()).encode(), data)
    return hashlib.blake2b(before.encode() + named, digest_size=12).hexdigest()


def _encode_state(value: Any) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):  # keys that JSON does not have, such as bytes
        return codec.encode(value)


def text_of_content(content: Any) -> str:
    """Return the text of a message's content: itself, or its parts with other parts named."""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        return "".join(_part(part) for part in content)
    return "" if content is None else brief(content, 2_000)


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return brief(part)
    return str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type', 'part')}]"


# How often supervisors have started each of their children, as the rows tell that make processes.

_ARGUMENT_CHARS: Final = 400  # by which two children of one supervisor are told apart


class SupervisedStarts:
    """Give it the rows `process.created` in order."""

    __slots__ = ("_counts", "_supervisors")

    def __init__(self) -> None:
        self._supervisors: set[str] = set()
        self._counts: dict[tuple[str, str], int] = {}  # by supervisor and what the child is

    def add(self, pid: str, data: Mapping[str, Any], arguments: Any) -> int:
        """Which start of a supervised child this is, from 1; 0 for a process that no supervisor started."""
        program, parent = to_fixed_name(str(data.get("program", ""))), str(data.get("parent") or "")
        if program == SUPERVISE:
            self._supervisors.add(pid)
        if parent not in self._supervisors:
            return 0
        child = (parent, f"{data.get('name')}|{program}|{repr(arguments)[:_ARGUMENT_CHARS]}")
        self._counts[child] = self._counts.get(child, 0) + 1
        return self._counts[child]
