"""RemoteProvider: the common base of the providers that speak HTTP and server-sent events.

A subclass defines the address (`url`), the request (`headers`, `body`) and how the bytes are read (`reader`); this
class posts, feeds the reader and passes its events on. A Reader is pure, so that it can be tested, measured and
replayed without a network. Every error is a ModelError that names the provider and the model. Leaving the stream
early closes the connection at once.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Container
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

import msgspec

from lyra.core.tool import ToolResult
from lyra.errors import ConfigError, ModelError
from lyra.models.provider import LLMProvider, Request
from lyra.models.settings import ProviderSettings
from lyra.models.stream import StreamEvent
from lyra.models.wire.faults import UNREADABLE, answer_malformed, from_code, not_an_answer, stream_truncated
from lyra.models.wire.http import Http, load, usual_sentence

if TYPE_CHECKING:
    import httpx2


_Event = TypeVar("_Event")

_HEAD_BYTES: Final = 4096  # beginning of the body, quoted if it is not an answer
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_NOT_IN_ID: Final = re.compile(r"[^A-Za-z0-9_-]")
_LINGER_S: Final = 0.25  # a finished answer's connection may end by itself and be used again


class Reader(Protocol):
    """Reads one answer, as an EventReader does: `error` follows the events that were returned."""

    done: bool
    error: ModelError | None

    @property
    def settled(self) -> bool: ...

    def feed(self, data: bytes) -> list[StreamEvent]: ...

    def close(self) -> list[StreamEvent]: ...


class RemoteProvider(LLMProvider):
    """One provider behind one address."""

    images = True
    hints: ClassVar[dict[str, str]] = {}  # by the kind of error: hints that are better than the general ones
    error_header: ClassVar[str] = ""
    settle_s: float = 0.0  # how long to wait for more if a stream does not mark its end
    opening: ClassVar[bytes] = b""  # the first bytes of a stream that is not server-sent events

    def __init__(self, settings: ProviderSettings, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self.name = settings.name
        self.settings = settings
        self.http = Http(
            provider=settings.name,
            timeouts=settings.timeouts,
            secrets=self.secrets,
            sentence=self.sentence,
            delay=self.delay,
            error_header=self.error_header,
            transport=transport,
        )

    @abstractmethod
    def url(self, request: Request) -> str: ...

    @abstractmethod
    def headers(self, request: Request) -> dict[str, str]: ...

    @abstractmethod
    def body(self, request: Request) -> dict[str, Any]: ...

    @abstractmethod
    def reader(self, request: Request) -> Reader: ...

    def load(self) -> None:
        load()

    async def ready(self) -> None:
        """Look up what the first call needs and what must not block the loop."""

    async def sign_request(self, url: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers to send, with credentials that have to be fetched or that sign the body."""
        return headers

    def secrets(self) -> tuple[str, ...]:
        """Return the values to redact in every message of the server."""
        return self.settings.secrets()

    def sentence(self, status: int, data: Any) -> tuple[str, str]:
        """(code, sentence) of an error that came as JSON."""
        return usual_sentence(status, data)

    def delay(self, data: Any) -> float | None:
        """Seconds to wait that the body of an error asks for, if no header does."""
        return None

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        try:
            body = msgspec.json.encode(self.body(request))
            await self.ready()
            url = self.url(request)
            sent = {**self.headers(request), **self.settings.sent_headers()}
            if request.idempotency_key:
                sent["idempotency-key"] = request.idempotency_key
            headers = await self.sign_request(url, body, sent)
            reader = self.reader(request)
            head = b""
            begun = False
            async with self.http.post(url, body, headers) as chunks:
                async for chunk in _settling(chunks, reader, self.settle_s) if self.settle_s else chunks:
                    if not begun and len(head) < _HEAD_BYTES:
                        head += chunk[:_HEAD_BYTES]
                    try:
                        events = reader.feed(chunk)
                    except ModelError as error:
                        if begun or error.kind != "malformed" or self._is_stream(head):
                            raise
                        raise self._no_answer(head) from None
                    if events:
                        begun = True
                        for event in events:
                            yield event
                    if reader.error is not None:
                        raise reader.error
                    if reader.done:
                        await _linger(chunks)
                        return
            try:
                events = reader.close()
            except ModelError:
                if begun or self._is_stream(head):
                    raise
                raise self._no_answer(head) from None
            for event in events:
                yield event
            if reader.error is not None:
                raise reader.error
        except ModelError as error:
            # The message and the fields may quote the server.
            error.message = self.http.clean(error.message)
            error.args = (error.message,)
            error.fields.update(
                {name: self.http.clean(text) for name, text in error.fields.items() if type(text) is str}
            )
            error.fields.setdefault("provider", self.name)
            error.fields.setdefault("model", request.model)
            if hint := self.hints.get(error.kind):
                error.hint = hint.format(model=request.model)
            raise

    def _is_stream(self, head: bytes) -> bool:
        """Return whether the beginning looks like a stream of events, even if it broke off before the first one."""
        if self.opening:
            return head.lstrip().startswith(self.opening)
        return any(line.startswith((b"data:", b"event:", b":")) for line in head.splitlines())

    def _no_answer(self, head: bytes) -> ModelError:
        """Return an answer of status 200 without a single event: an error as JSON, a web page, or nothing."""
        if not head.strip():
            return stream_truncated(f"{self.name} sent an empty answer")
        try:
            code, sentence = usual_sentence(200, msgspec.json.decode(head))
        except UNREADABLE:
            code = sentence = ""
        if sentence:
            return from_code(code, sentence)
        return not_an_answer(f"{self.name} sent no stream of events but {_render_head(head)}")

    async def close(self) -> None:
        await self.http.close()


async def _settling(chunks: AsyncIterator[bytes], reader: Reader, settle_s: float) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer; once it looks complete, only those that come within `settle_s`."""
    while True:
        try:
            async with asyncio.timeout(settle_s if reader.settled else None) as scope:
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if not scope.expired():
                raise
            return
        yield chunk


async def _linger(chunks: AsyncIterator[bytes]) -> None:
    """Read the end of the body for a short time, so that the connection can be used again."""
    try:
        with suppress(ModelError):
            async with asyncio.timeout(_LINGER_S) as scope:
                async for _ in chunks:
                    pass
    except TimeoutError:
        if not scope.expired():  # a deadline of the process that waits
            raise


def _render_head(head: bytes) -> str:
    text = " ".join(head.decode("utf-8", "replace").split())
    return repr(text if len(text) <= 80 else text[:79] + "…")


def piece(decoder: msgspec.json.Decoder[Any], data: str) -> Any:
    """One decoded piece of an answer; a piece that cannot be read is an error, never skipped."""
    try:
        return decoder.decode(data)
    except UNREADABLE as error:
        raise answer_malformed(f"a piece of the answer cannot be read: {error}") from None


class _Kind(msgspec.Struct):
    type: str


_KIND: Final = msgspec.json.Decoder(_Kind)


def decode_event(decoder: msgspec.json.Decoder[_Event], data: str, known: Container[str]) -> _Event | None:
    """One event whose `type` says what it is; None for an unknown type, which may hold anything."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:  # valid JSON of another form
        kind: str = piece(_KIND, data).type
        if kind not in known:
            return None
        raise answer_malformed(f"an event {kind} of the answer cannot be read: {error}") from None
    except UNREADABLE as error:
        raise answer_malformed(f"a piece of the answer is not valid JSON: {error}") from None


# ---------------------------------------------------------------- parts that several formats write alike
def fit_id(call_id: str, most: int) -> str:
    """Return the id of a call in a form that every provider accepts: letters, digits, `_` and `-`, at most `most`
    characters.

    Equal ids give equal results, so that a result finds its call; different ids stay different.
    """
    if 0 < len(call_id) <= most and _ID.fullmatch(call_id):
        return call_id
    mark = sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{_NOT_IN_ID.sub('_', call_id)[: most - 11]}_{mark}"


def image_url(part: dict[str, Any]) -> str:
    """Return the address of an image part; its data as a `data:` URL."""
    if isinstance(part.get("url"), str):
        return str(part["url"])
    if not isinstance(part.get("data"), str) or not isinstance(part.get("media_type"), str):
        raise ConfigError("an image part has a 'url', or 'media_type' and 'data' (base64)", key="content")
    return f"data:{part['media_type']};base64,{part['data']}"


def result_parts(result: ToolResult) -> list[dict[str, Any]] | None:
    """Return the parts of a tool's output when it is a list of them; None when it is a value to be written as text."""
    output = result.output
    if isinstance(output, list | tuple) and output and all(_is_part(part) for part in output):
        return [dict(part) for part in output]
    return None


def _is_part(part: Any) -> bool:
    return isinstance(part, dict) and (
        (part.get("type") == "text" and isinstance(part.get("text"), str))
        or (part.get("type") == "image" and ("url" in part or "data" in part))
    )


def result_text(output: Any) -> str:
    """Return a tool's output as text: text as it is, anything else as JSON."""
    if isinstance(output, str):
        return output
    try:
        return msgspec.json.encode(output).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        return str(output)
