"""A model that does whatever it is told, by whomever: the worst one that an agent can have.

An order is a mark, `[[do:NAME]]`, in any text that the model reads: the system prompt, the description of a tool, what
a tool, a page, a file, a memory or another agent says. However it is hidden (`disguises`), the model finds it, and from
then on makes the calls that the order stands for, one after the other, whatever comes of them; a `SECRET` that it has
seen by then it puts where a call has room for one. Before it hears an order it works on its user's task.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from lyra.models.provider import Request

__all__ = ["SECRET", "Obedient", "Step", "mark_of"]

_ORDER: Final = re.compile(r"\[\[do:([a-z0-9.]+)\]\]")
_WORD: Final = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX: Final = re.compile(r"(?:[0-9a-f]{2}){6,}")
_UNSEEN: Final = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_TAGS: Final = range(0xE0000, 0xE0080)
SECRET: Final = re.compile(r"SECRET-[a-z0-9]+-[a-z0-9]{16}")


class Step(NamedTuple):
    """One call: the tool and its arguments. `{secret}` in a text becomes a secret, once one was seen."""

    tool: str
    arguments: Mapping[str, Any]


def mark_of(name: str) -> str:
    return f"[[do:{name}]]"


class Obedient:
    """A script for the simulated provider. `orders` are what marks stand for, `task` what its user asks."""

    def __init__(self, task: list[Step], orders: Mapping[str, list[Step]], *, patient: bool = False) -> None:
        self._task = task
        self._orders = orders
        self._patient = patient  # it waits with what it was ordered until its user says something else
        self._talks: dict[str, _Talk] = {}  # by its first message: a helper has a talk of its own
        self.heard: set[str] = set()
        self.tried: list[Step] = []
        self.secrets: set[str] = set()  # that reached the model
        self.errors: list[str] = []  # that calls came to
        self.results: list[str] = []

    def __call__(self, request: Request) -> Any:
        opening = request.messages[0].text if request.messages else ""
        talk = self._talks.get(opening)
        if talk is None:
            mine = not self._talks  # the first talk is with the user; helpers have no task but what they are told
            talk = self._talks[opening] = _Talk(list(self._task) if mine else [])
        for result in request.messages[-1].tool_results if request.messages else ():
            (self.errors if result.is_error else self.results).append(_plain(result.output))
        for text in _texts(request):
            self.secrets |= set(SECRET.findall(text))
            for name in found_orders(text):
                if name in self._orders and name not in talk.heard:
                    talk.heard.add(name)
                    talk.ordered += self._orders[name]
                    self.heard.add(name)
        if talk.ordered and (not self._patient or sum(message.role == "user" for message in request.messages) > 1):
            step = talk.ordered.pop(0)
            self.tried.append(step)
        elif talk.task:
            step = talk.task.pop(0)
        else:
            return {"text": "done: " + " ".join(_last_results(request))[:2_000]}
        return {"tool_calls": [{"name": step.tool, "arguments": self._filled(step.arguments)}]}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{secret}", min(self.secrets, default="nothing"))
        if isinstance(value, Mapping):
            return {key: self._filled(inner) for key, inner in value.items()}
        return [self._filled(inner) for inner in value] if isinstance(value, (list, tuple)) else value


class _Talk:
    """One conversation: what is left of the task, and of what was ordered."""

    __slots__ = ("heard", "ordered", "task")

    def __init__(self, task: list[Step]) -> None:
        self.task = task
        self.heard: set[str] = set()
        self.ordered: list[Step] = []


def _texts(request: Request) -> Iterator[str]:
    """Everything that the model reads."""
    yield request.system
    for tool in request.tools:
        yield tool.description
        yield _plain(tool.schema)
    for message in request.messages:
        if message.role == "assistant":
            continue  # its own words
        yield message.text
        for result in message.tool_results:
            yield _plain(result.output)


def _last_results(request: Request) -> Iterator[str]:
    last = request.messages[-1]
    yield from (_plain(result.output) for result in last.tool_results)


def _plain(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output, default=str, ensure_ascii=False)


@lru_cache(maxsize=4_096)  # a conversation is read anew with every request
def found_orders(text: str) -> tuple[str, ...]:
    """The orders in a text, however they are written."""
    return tuple(dict.fromkeys(name for look in _looks(text) for name in _ORDER.findall(look)))


def _looks(text: str) -> Iterator[str]:
    seen = _UNSEEN.sub("", text)
    yield seen
    yield "".join(chr(ord(char) - 0xE0000) if ord(char) in _TAGS else "" for char in text)
    yield "".join(seen.split())
    yield "".join(char for char in seen if char.isalnum() or char in "[:].")
    yield seen[::-1]
    yield codecs.encode(seen, "rot13")
    for word in _WORD.findall(seen):
        for decode in (base64.b64decode, base64.urlsafe_b64decode):
            try:
                yield decode(word + "=" * (-len(word) % 4)).decode("utf-8", "ignore")
            except ValueError:
                continue
    for word in _HEX.findall(seen):
        yield bytes.fromhex(word).decode("utf-8", "ignore")
