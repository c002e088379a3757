"""A message of the bus: a type, a payload, and whether to trust it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.checking.check import check_keys, one_of, sendable_text
from lyra.core.clock import Clock
from lyra.core.envelope import Trust
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.policies.breaker import Breaker, CircuitBreaker, counts_as_failure
from lyra.errors import CircuitOpen, ConfigError, ProcessError

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core


CATEGORIES: Final[dict[str, str]] = {
    "event": "something happened; any number listen",
    "command": "do this; one handler",
    "query": "tell me this; one handler, one answer",
}
_TRUST: Final = tuple(word.value for word in Trust)


class BusMessage(msgspec.Struct, frozen=True, eq=False):
    """A message. It can be indexed like its payload (`message["key"]`), and equals its payload."""

    category: str
    type: str
    payload: Any = None
    trust: str = "trusted"  # or "untrusted": text from outside that may carry instructions of a third party
    id: str = ""
    timestamp: float = 0.0
    user_id: str = ""  # the user in whose name it was sent; "" where it is no user's

    def __getitem__(self, key: Any) -> Any:
        return self.payload[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.payload

    def get(self, key: Any, default: Any = None) -> Any:
        return self.payload.get(key, default)

    def __eq__(self, other: object) -> bool:
        """Compare two messages by id, type and payload, and a message with any other value by its payload."""
        if isinstance(other, BusMessage):
            return self.id == other.id and self.type == other.type and bool(self.payload == other.payload)
        return bool(self.payload == other)

    def __hash__(self) -> int:
        return hash(self.id)


def check_trust(word: Any) -> str:
    return word if word == "trusted" else str(one_of(word.lower() if isinstance(word, str) else word, _TRUST, "trust"))


def check_type(word: Any) -> None:
    if not isinstance(word, str) or not 0 < len(word) <= NAME_LENGTH_MAX:
        raise ConfigError(f"a message type is text of 1 to {NAME_LENGTH_MAX} characters, not {word!r}", key="type")
    sendable_text(word, "a message type")


# A reader of the bus that may be slower than the publisher: its queue is bounded and drops the oldest message.


class Queue:
    """The unread messages of a stream; the bus holds the queue, and the reader holds the stream."""

    __slots__ = ("__weakref__", "_core", "closed", "dropped", "ends", "messages", "size", "waiter")

    def __init__(self, core: Core[Any], size: int) -> None:
        self._core = core
        self.size = size
        self.messages: deque[BusMessage] = deque()
        self.ends: list[Callable[[], Any]] = []
        self.waiter: asyncio.Future[None] | None = None
        self.closed = False
        self.dropped = 0

    def put(self, message: BusMessage) -> None:
        if len(self.messages) >= self.size:
            oldest = self.messages.popleft()
            self.dropped += 1
            self._core.publish("", "bus.dropped", {"type": oldest.type, "id": oldest.id, "dropped": self.dropped})
        self.messages.append(message)
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def get(self) -> BusMessage | None:
        """Return the oldest unread message; None when there will be no more."""
        if self.waiter is not None:
            raise ProcessError("this stream is being read already", hint="one reader a stream: open another")
        while not self.messages and not self.closed:
            self.waiter = self._core.loop.create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
        return self.messages.popleft() if self.messages else None

    def close(self) -> None:
        self.closed = True
        ends, self.ends = self.ends, []
        for end in ends:
            end()
        self.wake()


class BusStream:
    """Events in order: `async for message in kernel.bus.stream("tick")`. Deleting it ends it, like `aclose()`."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def dropped(self) -> int:
        """Messages lost because this reader was too slow."""
        return self._queue.dropped

    def __aiter__(self) -> BusStream:
        return self

    async def __anext__(self) -> BusMessage:
        message = await self._queue.get()
        if message is None:
            raise StopAsyncIteration
        return message

    async def aclose(self) -> None:
        self._queue.close()

    async def __aenter__(self) -> BusStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._queue.close()

    def __del__(self) -> None:
        self._queue.close()


# A circuit breaker for the bus: messages for a handler that keeps failing are refused for a while.


class CircuitBreakerMiddleware:
    """After `threshold` failures in a row of one message type, its messages are refused for `reset_after` seconds.

    `threshold` 0 never opens; types in `exclude` are never refused. Only failures that say something about the health
    of the handler count (`policies.breaker`). Errors of subscribers are not returned, so events never open it.
    """

    __slots__ = ("_breakers", "_clock", "circuit_breaker", "exclude")

    def __init__(
        self,
        circuit_breaker: CircuitBreaker | dict[str, Any] | None = None,
        *,
        exclude: Iterable[str] = (),
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        if circuit_breaker is not None and settings:
            raise ConfigError("give a circuit breaker or its settings, not both", key=next(iter(settings)))
        check_keys(settings, CircuitBreaker.__struct_fields__, "circuit_breaker")
        self.circuit_breaker = CircuitBreaker.of(settings if circuit_breaker is None else circuit_breaker)
        self.exclude = frozenset([exclude] if isinstance(exclude, str) else exclude)
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}

    def bind(self, clock: Clock) -> None:
        """Use the bus's clock, unless another was given."""
        self._clock = self._clock or clock

    def state(self, type: str) -> str:  # noqa: A002
        breaker = self._breakers.get(type)
        return breaker.state if breaker is not None else "closed"

    def before(self, message: BusMessage) -> BusMessage:
        breaker = self._breaker(message)
        if breaker is not None:
            try:
                breaker.admit(self._now())
            except CircuitOpen as refusal:
                raise CircuitOpen(
                    f"messages of type {message.type} are refused: their handler kept failing",
                    hint=refusal.hint,
                    type=message.type,
                    **refusal.fields,
                ) from None
        return message

    def after(self, message: BusMessage, _result: Any, error: BaseException | None) -> None:
        breaker = self._breaker(message)
        if breaker is None:
            return
        if error is None:
            breaker.success(self._now())
        elif counts_as_failure(error):
            breaker.failure(self._now())
        else:
            breaker.abandon()

    def _breaker(self, message: BusMessage) -> Breaker | None:
        if message.type in self.exclude or self.circuit_breaker.threshold == 0:
            return None
        breaker = self._breakers.get(message.type)
        if breaker is None:
            breaker = self._breakers[message.type] = Breaker(self.circuit_breaker)
        return breaker

    def _now(self) -> float:
        if self._clock is None:
            raise ConfigError("a circuit breaker needs a clock", hint="hand it to `kernel.bus.use`, or give clock=…")
        return self._clock.monotonic()
