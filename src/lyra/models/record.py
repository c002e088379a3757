"""Record and replay: real answers are kept in a file and given again without a network and without a key.

A `Cassette` is a file of JSON lines: a line for what it is, then a line for each call with the request (its hash and a
readable form), the events of the answer with the time of each, and the error where it ended in one. `Recorder` wraps a
provider and writes, `Replayer` reads and answers. Everything is redacted before it is written, texts as a whole, so
that a key does not get through in pieces; the hash is that of the redacted request. A request is found by its hash; the
same request sent again gets the next answer that was recorded for it, and then always the last one. A request that was
not recorded is an error that shows the difference from the nearest one. An answer that the caller did not read to its
end is not recorded.

Tests use `lyra.testing.record`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.core.own_files import make_folder
from lyra.core.secrets.redact import redact, redact_data
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, LyraError, ModelError, ParseError, error_from_data, error_to_data
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider, Request, closing
from lyra.models.stream import (
    Finished,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolDelta,
    ToolEnd,
    ToolStart,
    UsageSeen,
)
from lyra.models.wire.faults import fault, from_exception

FORMAT: Final = {"lyra_cassette": 1}
_SHOWN_MAX: Final = 2_000  # characters of one text in the readable form of a request
_LEFT_OUT: Final = ("idempotency_key",)  # differs for every call
_EVENTS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (Started, TextDelta, ThinkingDelta, ToolStart, ToolDelta, ToolEnd, UsageSeen, Finished)
}

Secrets = Callable[[], Iterable[str | Secret]]


class RecordedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call. `events` are (seconds since the call, name of the event, its fields)."""

    provider: str
    hash: str
    request: dict[str, Any]
    events: tuple[tuple[float, str, dict[str, Any]], ...] = ()
    error: dict[str, Any] | None = None


class Cassette:
    """The calls of one file, in order. `add` keeps one more; `save` writes the file anew, all of it or nothing."""

    def __init__(self, path: str | os.PathLike[str], *, entries: Iterable[RecordedCall] = ()) -> None:
        self.path = Path(path)
        self.entries = list(entries)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Cassette:
        """Return the cassette of a file; a line that cannot be read is an error with its number."""
        try:
            lines = Path(path).read_bytes().splitlines()
        except OSError as error:
            raise ConfigError(
                f"the cassette {path} cannot be read: {error.strerror}", hint="record it first", key=str(path)
            ) from None
        parsed = [_line(str(path), number, line) for number, line in enumerate(lines, 1) if line.strip()]
        return cls(path, entries=[entry for entry in parsed if entry is not None])

    def add(self, entry: RecordedCall) -> None:
        self.entries.append(entry)

    def save(self) -> None:
        make_folder(self.path.parent)
        part = self.path.with_name(self.path.name + ".part")
        part.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in (FORMAT, *self.entries)))
        part.replace(self.path)


class _Appended(Cassette):
    """A cassette whose file grows with every call."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        if not self.path.exists():
            self.save()
        else:
            self.entries = Cassette.load(path).entries

    def add(self, entry: RecordedCall) -> None:
        super().add(entry)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")


class Recorder(LLMProvider):
    """Passes requests on to `provider` and records the answers. `secrets` are redacted, as are the provider's own."""

    def __init__(
        self,
        provider: LLMProvider,
        cassette: Cassette | str | os.PathLike[str],
        *,
        secrets: Secrets = tuple,
        name: str = "",
    ) -> None:
        self.name = name or provider.name
        self.images = provider.images
        self.provider = provider
        self._cassette = cassette if isinstance(cassette, Cassette) else _Appended(cassette)
        self._more = secrets

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        now = asyncio.get_running_loop().time
        began = now()
        seen: list[tuple[float, StreamEvent]] = []
        try:
            async with closing(self.provider.stream(request)) as events:
                async for event in events:
                    seen.append((now() - began, event))
                    yield event
        except Exception as error:
            told = error if isinstance(error, LyraError) else from_exception(error, self.name)
            if told is error or (told is not None and told.fields.get("kind") != "bad_response"):
                self._keep(request, seen, told)  # a mistake in the provider is no answer
            raise
        self._keep(request, seen, None)

    def _keep(self, request: Request, seen: list[tuple[float, StreamEvent]], error: LyraError | None) -> None:
        secrets = tuple(_text(secret) for secret in (*self.secrets(), *self._more()))
        data = redact_data(request_data(request), secrets)
        self._cassette.add(
            RecordedCall(
                self.name,
                _hash(data),
                _shorten(data),
                tuple(_redact_events(seen, secrets)),
                None if error is None else redact_data(error_to_data(error), secrets),
            )
        )

    def load(self) -> None:
        self.provider.load()

    def answers_in_order(self, model: str) -> bool:
        return self.provider.answers_in_order(model)

    def secrets(self) -> tuple[str, ...]:
        return self.provider.secrets()

    def price(self, model: str) -> Price | None:
        return self.provider.price(model)

    async def close(self) -> None:
        await self.provider.close()


class Replayer(LLMProvider):
    """Answers from a cassette, as the provider called `name` did (any, where it is empty).

    `in_order`: the requests have to come in the recorded order. `timings`: keep the recorded pauses. `otherwise`: the
    provider for requests that were not recorded.
    """

    images = True

    def __init__(
        self,
        cassette: Cassette | str | os.PathLike[str],
        name: str = "",
        *,
        in_order: bool = False,
        timings: bool = False,
        secrets: Secrets = tuple,
        otherwise: LLMProvider | None = None,
    ) -> None:
        self.name = name
        self._cassette = cassette if isinstance(cassette, Cassette) else Cassette.load(cassette)
        self._entries = [entry for entry in self._cassette.entries if not name or entry.provider == name]
        self._left: dict[str, list[RecordedCall]] = {}
        for entry in self._entries:
            self._left.setdefault(entry.hash, []).append(entry)
        self._more = sum(
            len(entries) - 1 for entries in self._left.values()
        )  # further answers to requests that were recorded more than once
        self._in_order = in_order
        self._timings = timings
        self._secrets = secrets
        self._otherwise = otherwise
        self._next = 0

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        entry = self._find(request)
        if entry is None:
            assert self._otherwise is not None
            async with closing(self._otherwise.stream(request)) as events:
                async for event in events:
                    yield event
            return
        passed = 0.0
        for seconds, name, fields in entry.events:
            if self._timings and seconds > passed:
                await asyncio.sleep(seconds - passed)
                passed = seconds
            yield msgspec.convert(fields, _EVENTS[name])
        if entry.error is not None:
            raise error_from_data(entry.error)

    def answers_in_order(self, model: str) -> bool:
        """True in order, and if a request was recorded more than once: it gets those answers one after the other."""
        if self._in_order or self._more:
            return True
        return self._otherwise is not None and self._otherwise.answers_in_order(model)

    def _find(self, request: Request) -> RecordedCall | None:
        data = redact_data(request_data(request), tuple(_text(secret) for secret in self._secrets()))
        key = _hash(data)
        if self._in_order:
            entry = self._entries[self._next] if self._next < len(self._entries) else None
            if entry is None and self._otherwise is not None:
                return None
            if entry is None or entry.hash != key:
                raise self._unknown(data, entry)
            self._next += 1
            return entry
        left = self._left.get(key)
        if left:
            if len(left) == 1:
                return left[0]
            self._more -= 1
            return left.pop(0)
        if self._otherwise is not None:
            return None
        raise self._unknown(data, _nearest(data, self._entries))

    def _unknown(self, data: dict[str, Any], nearest: RecordedCall | None) -> ModelError:
        path = self._cassette.path
        if nearest is None:
            explanation = (
                f"{path} has no more requests" if self._in_order else f"{path} has no requests of {self.name or 'any'}"
            )
        else:
            number = self._cassette.entries.index(nearest) + 1
            explanation = (
                f"call {number} of {path} is the nearest; there {_difference(nearest.request, _shorten(data))}"
            )
        return fault(
            "bad_request",
            f"this request to {data['model']!r} was not recorded: {explanation}",
            hint="record again with LYRA_RECORD=all, or LYRA_RECORD=new to add what is missing",
            provider=self.name,
            model=data["model"],
        )

    async def close(self) -> None:
        if self._otherwise is not None:
            await self._otherwise.close()


def request_data(request: Request) -> dict[str, Any]:
    """Return a request as plain data, without the fields that have their defaults."""
    data: dict[str, Any] = {}
    for name, usual in zip(Request.__struct_fields__[2:], Request.__struct_defaults__, strict=True):
        value = getattr(request, name)
        if name not in _LEFT_OUT and value != usual:
            data[name] = value
    if request.tools:
        data["tools"] = [
            {"name": tool.name, "description": tool.description, "schema": tool.schema} for tool in request.tools
        ]
    return {"model": request.model, **data, "messages": [message.to_data() for message in request.messages]}


def _hash(data: dict[str, Any]) -> str:
    text = msgspec.json.encode(data, enc_hook=str, order="deterministic")
    return blake2b(text, digest_size=16).hexdigest()


def _shorten(value: Any) -> Any:
    """Return a copy for reading and comparing: long texts are cut, with their length and a digest."""
    if isinstance(value, str) and len(value) > _SHOWN_MAX:
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return f"{value[:_SHOWN_MAX]}… ({len(value)} characters, {digest})"
    if isinstance(value, dict):
        return {str(key): _shorten(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shorten(item) for item in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def _nearest(data: dict[str, Any], entries: list[RecordedCall]) -> RecordedCall | None:
    """Return the recorded request that has most in common with this one."""
    asked = _shorten(data)
    text = msgspec.json.encode(asked).decode()

    def common(entry: RecordedCall) -> tuple[int, int, int]:
        same = 0
        for recorded, other in zip(entry.request.get("messages", ()), asked["messages"], strict=False):
            if recorded != other:
                break
            same += 1
        fields = sum(entry.request.get(name) == value for name, value in asked.items())
        other_text = msgspec.json.encode(entry.request).decode()
        alike = next(
            (index for index, pair in enumerate(zip(text, other_text, strict=False)) if pair[0] != pair[1]), len(text)
        )
        return same, fields, alike

    return max(entries, key=common, default=None)


def _difference(recorded: Any, asked: Any, path: str = "") -> str:
    """Return the first difference of two values, as a sentence."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for name in (*recorded, *asked):
            if recorded.get(name) != asked.get(name):
                return _difference(recorded.get(name), asked.get(name), f"{path}.{name}" if path else name)
    if isinstance(recorded, list) and isinstance(asked, list):
        for index, (was, other) in enumerate(zip(recorded, asked, strict=False)):
            if was != other:
                return _difference(was, other, f"{path}[{index}]")
        return f"{path} has {len(recorded)} items, here {len(asked)}"
    if path:
        return f"{path} is {_brief(recorded)}, here {_brief(asked)}"
    return "nothing is different but the order of the calls"


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:119] + "…"


def _redact_events(
    seen: list[tuple[float, StreamEvent]], secrets: tuple[str, ...]
) -> list[tuple[float, str, dict[str, Any]]]:
    """Return the events as data. A text in which a key was found across pieces becomes one piece."""
    whole: dict[Any, list[str]] = {}
    for _, event in seen:
        if isinstance(event, (TextDelta, ThinkingDelta, ToolDelta)):
            whole.setdefault(_channel(event), []).append(event.text)
    joined = {channel: "".join(texts) for channel, texts in whole.items()}
    cleaned = {channel: redact(text, secrets) for channel, text in joined.items()}
    given: set[Any] = set()
    events = []
    for seconds, event in seen:
        fields = msgspec.to_builtins(event)
        if (
            isinstance(event, (TextDelta, ThinkingDelta, ToolDelta))
            and cleaned[_channel(event)] != joined[_channel(event)]
        ):
            again = _channel(event) in given
            if again and not fields.get("signature"):
                continue
            given.add(_channel(event))
            fields["text"] = (
                "" if again else cleaned[_channel(event)]
            )  # a signature ends its thought, with or without text
        else:
            # By values, not by names of fields: a tool call with an argument `cookie` is recorded unchanged.
            fields = redact_data(fields, secrets, fields=False)
        events.append((round(seconds, 3), type(event).__name__, fields))
    return events


def _channel(event: TextDelta | ThinkingDelta | ToolDelta) -> Any:
    return (type(event), event.index) if isinstance(event, ToolDelta) else type(event)


def _text(secret: str | Secret) -> str:
    return secret.reveal() if isinstance(secret, Secret) else secret


def _line(file: str, number: int, line: bytes) -> RecordedCall | None:
    try:
        if number == 1:
            if msgspec.json.decode(line) != FORMAT:
                raise ParseError("not a cassette", file=file, line=1, column=1, hint="its first line says what it is")
            return None
        entry = msgspec.json.decode(line, type=RecordedCall)
        for _, name, fields in entry.events:
            msgspec.convert(fields, _EVENTS[name])
    except (msgspec.DecodeError, msgspec.ValidationError, ConfigError, KeyError) as error:
        raise ParseError(f"not a line of a cassette: {error}", file=file, line=number, column=1) from None
    return entry
