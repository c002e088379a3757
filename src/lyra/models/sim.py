"""The simulated model: provider `sim`. No network, no key, the same answers every time.

`sim/echo` answers with the last user text, a word at a time. `sim/script` plays a Script (see `script`):
`sim/script:PATH` reads it from a file, `SimProvider(script=…)` takes one made in Python, and `LYRA_SIM_SCRIPT` names
the file for a plain `sim/script`. A function `(request) -> Reply | str` can replace the script. Pauses are sleeps of
the running loop, so they take no real time in a simulated loop. Honours `max_tokens` and `stop` as a real model does,
and counts four bytes a token where the script gives no counts.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from copy import copy
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lyra.core.ids import make_random
from lyra.core.message import Message
from lyra.core.tool import ToolCall
from lyra.errors import ConfigError, ModelError
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider, Request
from lyra.models.script import Reply, Script, ScriptedError
from lyra.models.stream import (
    CUT_BY_PROVIDER,
    Finished,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolDelta,
    ToolEnd,
    ToolStart,
    UsageSeen,
)
from lyra.models.tokens import Measure
from lyra.models.wire.faults import KINDS, fault

BYTES_PER_TOKEN: Final = 4
SCRIPT_VARIABLE: Final = "LYRA_SIM_SCRIPT"
_REMEMBERED_MAX: Final = 10_000  # requests whose attempts are counted, for errors that end after some
_FIELD: Final = re.compile(r"\{(\w+)\}")
_WORDS: Final = re.compile(r"\S+\s*|\s+")
_END: Final = Finished("end")

_Seen = dict[str, str]  # field of a template → value


class _Answer(msgspec.Struct, frozen=True):
    events: tuple[StreamEvent, ...]  # the pieces: thoughts, text, tool calls
    tokens: int
    stop_reason: str


class SimProvider(LLMProvider):
    """`script`: a Script, a mapping or list like a file's, the path of a file, or a function of the Request.

    With `every_model` it answers for every model name, by the script or else as an echo.
    """

    name = "sim"
    images = True

    def __init__(self, script: Any = None, *, every_model: bool = False) -> None:
        self._given = script
        self._every_model = every_model
        self._echo = _Play(_ECHOES)
        self._plays: dict[str, _Play] = {} if every_model else {"echo": self._echo}
        self._measure = Measure()
        self.calls = 0  # requests so far

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.calls += 1
        play = self._plays.get(request.model) or self._play(request.model)
        reply, seen, error = play.choose(request, self.calls)
        script = play.script
        if wait_s := script.first_s if reply.first_s is None else reply.first_s:
            await asyncio.sleep(wait_s)
        if error is not None and error.after_chunks is None:
            raise _make_error(error)
        yield play.started
        answer = play.answer(request, reply, seen)
        wait_s = script.chunk_s if reply.chunk_s is None else reply.chunk_s
        events = answer.events if error is None else answer.events[: error.after_chunks]
        if wait_s:
            for index, event in enumerate(events):
                if index:
                    await asyncio.sleep(wait_s)
                yield event
        else:
            for event in events:
                yield event
        if error is not None:
            raise _make_error(error)
        yield UsageSeen(self._usage(request, reply, answer.tokens))
        yield _END if answer.stop_reason == "end" else Finished(answer.stop_reason)

    def price(self, model: str) -> Price | None:
        """Free, unless the script has a price: money budgets can be tried offline."""
        return (self._plays.get(model) or self._play(model)).script.price

    def answers_in_order(self, model: str) -> bool:
        """True if a reply is used up, chosen by the number of the call, or preceded by a number of errors."""
        return self._play(model).counts

    def _play(self, model: str) -> _Play:
        if self._every_model:
            model = ""  # one play for all models: uses of a reply are counted together
        play = self._plays.get(model)
        if play is None:
            play = self._plays[model] = _Play(self._find(model), f"sim/{model}")
        return play

    def _find(self, model: str) -> Any:
        if self._every_model:
            return self._echo.script if self._given is None else self._script(self._given)
        kind, _, path = model.partition(":")
        if kind not in ("script", ""):  # an Agent that holds the provider itself names no model
            raise ConfigError(
                f"there is no model 'sim/{model}'", hint="sim has echo, script and script:PATH", key=model
            )
        if path:
            return Script.coerce(path)
        given = self._given if self._given is not None else os.environ.get(SCRIPT_VARIABLE)
        if not given:
            raise ConfigError(
                "'sim/script' has no script",
                hint=f"name its file: sim/script:FILE.yaml, or set {SCRIPT_VARIABLE}",
                key=model,
            )
        return self._script(given)

    @staticmethod
    def _script(given: Any) -> Any:
        return given if callable(given) else Script.coerce(given)

    def _usage(self, request: Request, reply: Reply, sent: int) -> TokenUsage:
        given = reply.usage
        if given is not None and "input_tokens" in given and "output_tokens" in given:
            return msgspec.convert(given, TokenUsage)
        wordy, dense, _ = self._measure.size(request)
        read = -(-(wordy + dense) // BYTES_PER_TOKEN)
        if given is None:
            return TokenUsage(read, sent)
        return msgspec.convert({"input_tokens": read, "output_tokens": sent, **given}, TokenUsage)


class _Play:
    """One script being played: which replies are used up, which requests were tried how often."""

    __slots__ = ("_function", "_ready", "_replies", "_tries", "_used", "counts", "script", "started")

    def __init__(self, script: Any, name: str = "sim/echo") -> None:
        self._function: Callable[[Request], Any] | None = None
        if isinstance(script, Script):
            self.script = script
        else:
            self._function, self.script = script, _PLAIN
        self._replies = tuple([(index, reply, _conditional(reply)) for index, reply in enumerate(self.script.all)])
        self._used = [0] * len(self._replies)
        self._tries: dict[bytes, int] = {}
        self.counts = any(_counts(reply) for _, reply, _ in self._replies)  # an answer depends on earlier ones
        # Answers that are the same for every request are made once; the key is the id() of the reply.
        self._ready: dict[int, _Answer | None] = {id(reply): None for _, reply, _ in self._replies if _constant(reply)}
        self.started = Started("sim", name)

    def choose(self, request: Request, call: int) -> tuple[Reply, _Seen, ScriptedError | None]:
        """Return the reply, what its conditions matched, and the error for this attempt."""
        if self._function is not None:
            reply = _reply_of(self._function(request))
            return reply, {}, self._error(request, reply)
        for index, reply, conditional in self._replies:
            if not conditional:
                seen: _Seen | None = _NOTHING
            elif reply.times is not None and self._used[index] >= reply.times:
                continue
            else:
                seen = _fits(reply, request)
            if seen is None:
                continue
            error = None if reply.error is None else self._error(request, reply)
            if (
                error is None or error.attempts is None
            ):  # an error that ends after some attempts does not use a reply up
                self._used[index] += 1
            if reply.one_of is not None:
                chosen = int(make_random(self.script.seed * 1_000_003 + call)() * len(reply.one_of))
                return msgspec.structs.replace(reply, text=reply.one_of[chosen], one_of=None), seen, error
            return reply, seen, error
        raise _nothing_fits(request)

    def _error(self, request: Request, reply: Reply) -> ScriptedError | None:
        error = reply.error
        if error is None or error.attempts is None:
            return error
        messages = [message.to_data() for message in request.messages]
        key = blake2b(
            msgspec.json.encode([request.model, request.system, messages], enc_hook=str), digest_size=16
        ).digest()
        tried = self._tries.pop(key, 0) + 1
        self._tries[key] = tried
        if len(self._tries) > _REMEMBERED_MAX:
            del self._tries[next(iter(self._tries))]
        return error if tried <= error.attempts else None

    def answer(self, request: Request, reply: Reply, seen: _Seen) -> _Answer:
        room = request.max_tokens
        if not request.stop:
            ready = self._prepare_answer(request, reply, seen)
            if ready is not None and (room is None or ready.tokens <= room):
                return ready
        return self._make(request, reply, seen, room)

    def _prepare_answer(self, request: Request, reply: Reply, seen: _Seen) -> _Answer | None:
        """Return an echo, or an answer that is the same for every request; None for other replies."""
        if reply is _ECHO:
            text = _last_user_text(request.messages)
            return _Answer(tuple(map(TextDelta, _WORDS.findall(text))), _tokens(text), "end")
        key = id(reply)
        if key not in self._ready:
            return None
        ready = self._ready[key]
        if ready is None:
            ready = self._ready[key] = self._make(request, reply, seen, None)
        return ready

    def _make(self, request: Request, reply: Reply, seen: _Seen, room: int | None) -> _Answer:
        chunks = self.script.chunks if reply.chunks is None else reply.chunks
        fields = _Fields(request, seen)
        thinking = fields.fill(reply.thinking) if reply.thinking else ""
        text, stop = _cut_at_stop(fields.fill(reply.text), request.stop)
        if room is not None and _tokens(thinking) + _tokens(text) > room:
            thinking = _cut(thinking, room)
            text, stop = _cut(text, room - _tokens(thinking)), "max_tokens"
        events: list[StreamEvent] = [ThinkingDelta(chunk) for chunk in _split(thinking, chunks)]
        events += [TextDelta(chunk) for chunk in _split(text, chunks)]
        tokens = _tokens(thinking) + _tokens(text)
        if reply.tool_calls and not stop:
            calls, sent = _calls(reply, request, fields, chunks)
            if room is not None and tokens + sent > room:
                return _Answer(tuple(events), room, "max_tokens")
            events += calls
            tokens += sent
            stop = "tool_calls"
        return _Answer(tuple(events), tokens, reply.stop_reason or stop or "end")


_ECHO: Final = Reply("{user}")
_ECHOES: Final = Script(replies=(_ECHO,))
_SILENT: Final = Reply()
_PLAIN: Final = Script(replies=())
_NOTHING: Final[_Seen] = {}


def _conditional(reply: Reply) -> bool:
    return bool([name for name in _CONDITIONS if getattr(reply, name) is not None])


def _counts(reply: Reply) -> bool:
    passes = reply.error is not None and reply.error.attempts is not None
    return reply.times is not None or reply.one_of is not None or passes


def _constant(reply: Reply) -> bool:
    return reply.one_of is None and not reply.tool_calls and "{" not in reply.text + (reply.thinking or "")


_CONDITIONS: Final = ("user", "contains", "tool", "result", "system", "model", "turn", "times")


def _reply_of(value: Any) -> Reply:
    """Return what a script's function gave: a Reply, a mapping like a file's, or a text."""
    if isinstance(value, Reply):
        return value
    if not isinstance(value, str):
        return Reply.from_data(value)
    reply = copy(_SILENT)  # a valid Reply: only the text is set
    msgspec.structs.force_setattr(reply, "text", value)
    return reply


# ---------------------------------------------------------------- which reply
def _fits(reply: Reply, request: Request) -> _Seen | None:
    """Return what the conditions matched, or None where one of them does not hold."""
    messages = request.messages
    asks_tool = reply.tool is not None or reply.result is not None
    asks_user = reply.user is not None or reply.contains is not None
    seen: _Seen = {}
    if asks_tool or asks_user:
        last = messages[-1] if messages else None
        if last is None or last.role != ("tool" if asks_tool else "user"):
            return None
        if asks_tool and reply.tool is not None and all(result.name != reply.tool for result in last.tool_results):
            return None
        if reply.result is not None and not _search(reply.result, _results_text(last), seen):
            return None
        if asks_user:
            text = _last_user_text(messages)
            if reply.contains is not None and reply.contains not in text:
                return None
            if reply.user is not None and not _search(reply.user, text, seen):
                return None
    if reply.system is not None and not _search(reply.system, request.system, seen):
        return None
    if reply.model is not None and reply.model != request.model:
        return None
    if reply.turn is not None and reply.turn != _turn(messages):
        return None
    return seen


def _search(pattern: re.Pattern[str], text: str, seen: _Seen) -> bool:
    match = pattern.search(text)
    if match is None:
        return False
    if pattern.groups:
        seen.update((str(number), value or "") for number, value in enumerate(match.groups(), 1))
        seen.update((name, value or "") for name, value in match.groupdict().items())
    seen["0"] = match.group()
    return True


def _last_user_text(messages: tuple[Message, ...]) -> str:
    for message in reversed(messages):
        if message.role == "user":
            return message.text
    return ""


def _results_text(message: Message) -> str:
    return "\n".join(
        result.output if isinstance(result.output, str) else msgspec.json.encode(result.output).decode()
        for result in message.tool_results
    )


def _turn(messages: tuple[Message, ...]) -> int:
    return 1 + sum(message.role == "assistant" for message in messages)


def _nothing_fits(request: Request) -> ModelError:
    last = request.messages[-1] if request.messages else Message("user")
    last_text = last.text if last.role != "tool" else _results_text(last)
    return fault(
        "bad_request",
        f"no reply of the script fits turn {_turn(request.messages)}, after {last.role} said {last_text[:200]!r}",
        hint="add a reply without conditions: it fits always",
        provider="sim",
        model=request.model,
    )


def _make_error(error: ScriptedError) -> ModelError:
    message = error.message if error.message is not None else KINDS[error.kind]
    return fault(error.kind, message, provider="sim", retry_after_s=error.retry_after_s)


# ---------------------------------------------------------------- what it says
class _Fields:
    """The values of `{1}` and the other fields, looked up when a text has one."""

    __slots__ = ("_request", "_seen")

    def __init__(self, request: Request, seen: _Seen) -> None:
        self._request = request
        self._seen = seen

    def fill(self, text: str) -> str:
        return _FIELD.sub(self._field, text) if "{" in text else text

    def fill_all(self, value: Any) -> Any:
        """Every text inside a value."""
        if isinstance(value, str):
            return self.fill(value)
        if isinstance(value, dict):
            return {key: self.fill_all(item) for key, item in value.items()}
        return [self.fill_all(item) for item in value] if isinstance(value, (list, tuple)) else value

    def _field(self, match: re.Match[str]) -> str:
        name = match.group(1)
        if name in self._seen:
            return self._seen[name]
        messages = self._request.messages
        if name == "user":
            return _last_user_text(messages)
        if name == "result":
            return _results_text(messages[-1]) if messages else ""
        return str(_turn(messages)) if name == "turn" else match.group()


def _calls(reply: Reply, request: Request, fields: _Fields, chunks: str | int) -> tuple[list[StreamEvent], int]:
    """Return the events of the tool calls, and their tokens. An id is the same whenever the same conversation is
    played. Of an answer that is cut (`stop_reason`), the last call is: half of its arguments come, and no end."""
    events: list[StreamEvent] = []
    tokens = 0
    calls = reply.tool_calls or ()
    for index, scripted in enumerate(calls):
        call_id = scripted.id or f"call_{len(request.messages)}_{index}"
        call = ToolCall(call_id, scripted.name, fields.fill_all(scripted.arguments))
        text = msgspec.json.encode(call.arguments).decode()
        events.append(ToolStart(index, call_id, call.name))
        is_cut = reply.stop_reason == CUT_BY_PROVIDER and scripted is calls[-1]
        text = text[: len(text) // 2] if is_cut else text
        events += [ToolDelta(index, chunk) for chunk in _split(text, chunks)]
        if not is_cut:
            events.append(ToolEnd(index, call))
        tokens += _tokens(call.name) + _tokens(text)
    return events, tokens


def _split(text: str, chunks: str | int) -> list[str]:
    if chunks == "word":
        return _WORDS.findall(text)
    if isinstance(chunks, str):
        return [text] if text else []
    return [text[start : start + chunks] for start in range(0, len(text), chunks)]


def _cut_at_stop(text: str, stops: tuple[str, ...]) -> tuple[str, str]:
    """Return the text up to the first of the stop texts, and why it ends there."""
    places = [index for stop in stops if stop and (index := text.find(stop)) >= 0]
    return (text[: min(places)], "stop_sequence") if places else (text, "")


def _tokens(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def _cut(text: str, tokens: int) -> str:
    """Return the beginning of a text that fits into this many tokens."""
    return text.encode("utf-8", "surrogatepass")[: tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")
