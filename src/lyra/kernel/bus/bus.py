"""The message bus: events for any number of subscribers, commands and queries for one handler.

    event     `publish`: every subscriber is called, at the same time; an error in one is reported to the loop's
              exception handler only; an event may have no subscriber
    command   `send`: one handler, nothing comes back; no handler is NoSuchHandler
    query     `query`: one handler, its result within a time-out, or NoSuchHandler, or DeadlineExceeded

A subscriber or handler is a plain or an async function of one `BusMessage`. Plain ones are called at once and must be
quick; async ones run side by side, started in the order of publication, and the publisher waits for them all.
`stream` gives a reader that may be slower than the publisher: it has room for a hundred messages, then loses the
oldest, and an Event says so. Middleware (`use`) sees each message before and after.

A message belongs to the user in whose name it was sent (`BusMessage.user_id`): what a process sends is its user's, and
code outside any process may name one. Subscribers and handlers of a user's process get messages of that user alone;
those of no user get all messages, and a user's own handler goes before one of no user.

The bus lives in memory and keeps nothing: a message that must outlive a crash goes to a mailbox (`kernel.send`), and a
program reaches the bus inside an effect (`ctx.do`), so that a replay does not publish again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from lyra.core.checking.check import check_integer, real
from lyra.core.limits import BUS_QUERY_TIMEOUT_S, BUS_STREAM_MESSAGES_MAX, BUS_SUBSCRIBERS_MAX
from lyra.core.naming import give_name
from lyra.core.rights.scope import EVERYTHING
from lyra.errors import ConfigError, DeadlineExceeded, Denied, NameTaken, NoSuchHandler, Overloaded, ProcessError
from lyra.kernel.base.acting import acting, as_registered, require
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.base.waiting import in_time
from lyra.kernel.bus.message import (
    CATEGORIES,
    BusMessage,
    BusStream,
    CircuitBreakerMiddleware,
    Queue,
    check_trust,
    check_type,
)
from lyra.kernel.workers.quota import check_user

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core

__all__ = ["CATEGORIES", "BusMessage", "BusStream", "CircuitBreakerMiddleware", "CommBus", "Middleware"]

_ID_LENGTH: Final = 16
_UNTRUSTED: Final = "untrusted"


class Middleware(Protocol):
    """Sees every message. Both methods may be plain or async, and either may be missing."""

    async def before(self, message: BusMessage) -> BusMessage | None:
        """Return the message to deliver, changed or not; None stops it."""

    async def after(self, message: BusMessage, result: Any, error: BaseException | None) -> Any:
        """None leaves the outcome alone; a pair (result, error) replaces it; anything else replaces the result."""


class Subscriber:
    __slots__ = ("fn", "given", "live", "owner", "user_id")

    def __init__(self, fn: Callable[[BusMessage], Any], user_id: str = "") -> None:
        self.user_id = user_id  # whose messages it gets; "" gets all
        self.owner = acting()  # the process that subscribed; None outside any
        self.given = fn  # as it is: enough where its owner is the one that runs
        self.fn = as_registered(fn)
        self.live = True


class BusLayer:
    """A middleware that is in use; what it does is done by the process that put it there."""

    __slots__ = ("after", "before", "owner")

    def __init__(self, middleware: Any) -> None:
        self.owner = acting()
        self.before, self.after = (_method(middleware, name) for name in ("before", "after"))


class CommBus(Subsystem):
    def __init__(self, core: Core[Any], user_of: Callable[[str], str]) -> None:
        self._core = core
        self._user_of = user_of  # by pid; "" for a process of no user
        self._subscribers: dict[str, dict[Subscriber, None]] = {}
        self._handlers: dict[tuple[str, str], Subscriber] = {}  # by user ("" for no user's) and type
        self._middleware: list[BusLayer] = []
        self._queues: dict[Queue, None] = {}

    # ------------------------------------------------------------------ subscribers and handlers

    def subscribe(self, type: str, fn: Callable[[BusMessage], Any]) -> Callable[[], None]:  # noqa: A002 (a settled name)
        """Have `fn` called with every event of that type; gives a callable that ends it, as often as you like."""
        return self._subscribe(type, fn, self._acting_user())

    def _subscribe(self, type: str, fn: Callable[[BusMessage], Any], user_id: str) -> Callable[[], None]:  # noqa: A002
        self._core.raise_if_elsewhere()
        check_type(type)
        _check_callable(fn, "a subscriber")
        require("events.subscribe", type)
        listeners = self._subscribers.setdefault(type, {})
        if len(listeners) >= BUS_SUBSCRIBERS_MAX:
            raise Overloaded(
                f"{type} has {len(listeners)} subscribers, the most there may be",
                hint="call what subscribe gave, to end one",
                type=type,
            )
        subscriber = Subscriber(fn, user_id)
        listeners[subscriber] = None

        def unsubscribe() -> None:
            subscriber.live = False
            listeners.pop(subscriber, None)
            if not listeners and self._subscribers.get(type) is listeners:
                del self._subscribers[type]

        return unsubscribe

    def subscribers(self, type: str) -> int:  # noqa: A002
        check_type(type)
        return len(self._subscribers.get(type, ()))

    def register_handler(self, type: str, fn: Callable[[BusMessage], Any]) -> None:  # noqa: A002
        """Let `fn` answer commands and queries of that type; there is one for each."""
        self._core.raise_if_elsewhere()
        check_type(type)
        _check_callable(fn, "a handler")
        require("events.subscribe", type)
        key = (self._acting_user(), type)
        if key in self._handlers:
            raise NameTaken(
                f"messages of type {type!r} have a handler already", hint="unregister_handler first", type=type
            )
        self._handlers[key] = Subscriber(fn, key[0])

    def unregister_handler(self, type: str) -> None:  # noqa: A002
        self._core.raise_if_elsewhere()
        check_type(type)
        require("events.subscribe", type)
        if self._handlers.pop((self._acting_user(), type), None) is None:
            raise _no_handler(type)

    def has_handler(self, type: str) -> bool:  # noqa: A002
        check_type(type)
        return self._handler(self._acting_user(), type) is not None

    def _handler(self, user_id: str, type: str) -> Subscriber | None:  # noqa: A002
        """Return the handler for a user's messages of a type: the user's own, else the one of no user."""
        own = self._handlers.get((user_id, type)) if user_id else None
        return self._handlers.get(("", type)) if own is None else own

    def use(self, middleware: Any) -> Callable[[], None]:
        """Put a middleware behind those that are there; gives a callable that takes it out again. It sees and changes
        every message, so a process needs the rights over all of them."""
        self._core.raise_if_elsewhere()
        require("events.subscribe", EVERYTHING)
        require("events.publish", EVERYTHING)
        layer = BusLayer(middleware)
        if layer.before is None and layer.after is None:
            raise ConfigError(f"{middleware!r} has neither `before` nor `after`", hint="a middleware has one or both")
        if isinstance(middleware, CircuitBreakerMiddleware):
            middleware.bind(self._core.clock)
        self._middleware.append(layer)

        def remove() -> None:
            with suppress(ValueError):
                self._middleware.remove(layer)

        return remove

    def stream(
        self, types: str | Iterable[str], *, size: int = BUS_STREAM_MESSAGES_MAX, user_id: str = ""
    ) -> BusStream:
        """Events of these types as an async iterator, from now on; it has room for `size` unread ones. With `user_id`
        only those of that user."""
        self._core.raise_if_elsewhere()
        self._open()
        wanted = [types] if isinstance(types, str) else list(types)
        if not wanted:
            raise ConfigError("a stream needs at least one message type", key="types")
        check_integer(size, "size", least=1, most=BUS_STREAM_MESSAGES_MAX)
        for word in wanted:
            check_type(word)
        reader = self._user_named(user_id)
        queue = Queue(self._core, size)
        self._queues[queue] = None
        queue.ends = [self._subscribe(word, queue.put, reader) for word in dict.fromkeys(wanted)]
        queue.ends.append(lambda: self._queues.pop(queue, None))
        return BusStream(queue)

    # ------------------------------------------------------------------ messages

    @give_name("lyra:CommBus.publish")
    async def publish(
        self,
        type: str,  # noqa: A002
        payload: Any = None,
        *,
        trust: str = "trusted",
        user_id: str = "",
    ) -> int:
        """Call every subscriber; returns when all have run, with their number. `user_id` names the user whose message
        it is."""
        message = self._message("event", type, payload, trust, user_id)
        with self._core.flight:
            return await self._publish(message)

    async def _publish(self, message: BusMessage) -> int:
        if not self._middleware:
            return await self._fan_out(message)
        delivered = 0

        async def tell(seen: BusMessage) -> None:  # an event has no result for `after` to see
            nonlocal delivered
            delivered = await self._fan_out(seen)

        await self._through(message, tell)
        return delivered

    @give_name("lyra:CommBus.send")
    async def send(
        self,
        type: str,  # noqa: A002
        payload: Any = None,
        *,
        trust: str = "trusted",
        user_id: str = "",
    ) -> None:
        """Run the handler and wait for its end. Its exception is raised here. `user_id` names the user whose message
        it is."""
        message = self._message("command", type, payload, trust, user_id)
        with self._core.flight:
            await self._through(message, self._handle)

    @give_name("lyra:CommBus.query")
    async def query(
        self,
        type: str,  # noqa: A002
        payload: Any = None,
        *,
        timeout_s: float | None = BUS_QUERY_TIMEOUT_S,
        trust: str = "trusted",
        user_id: str = "",
    ) -> Any:
        """Run the handler and give its result. `timeout_s=None` waits without a limit; `user_id` names the user whose
        message it is."""
        limit_s = None if timeout_s is None else real(timeout_s, "timeout_s", above=0.0)

        async def ask(message: BusMessage) -> Any:
            if limit_s is None:
                return await self._handle(message)
            late = DeadlineExceeded(f"query {message.type} timed out after {limit_s:.2f}s", timeout_s=limit_s)
            return await in_time(self._core.clock, self._handle(message), limit_s, late)

        message = self._message("query", type, payload, trust, user_id)
        with self._core.flight:
            return await self._through(message, ask)

    def _message(self, category: str, type: str, payload: Any, trust: str, user_id: str) -> BusMessage:  # noqa: A002
        self._open()
        check_type(type)
        require("events.publish", type)
        core = self._core
        trust = _UNTRUSTED if core.taint.is_here else check_trust(trust)
        message_id = f"msg_{core.entropy.text(_ID_LENGTH)}"
        return BusMessage(category, type, payload, trust, message_id, core.now(), self._user_named(user_id))

    def _acting_user(self) -> str:
        """Return the user of the process that runs here; "" outside any, and in one of no user."""
        process = acting()
        return "" if process is None or process.core is not self._core else self._user_of(process.pid)

    def _user_named(self, user_id: str) -> str:
        """Return the user that a call names, else the user of the process that runs here, which may name no other."""
        own = self._acting_user()
        if not user_id or user_id == own:
            return own
        if own:
            raise Denied(f"a process of one user does not use the bus of another: {user_id!r}", user_id=user_id)
        return check_user(user_id)

    async def _handle(self, message: BusMessage) -> Any:
        handler = self._handler(message.user_id, message.type)
        if handler is None:
            raise _no_handler(message.type)
        self._mark(handler.owner, message)
        try:
            result = handler.fn(message)
            return await result if _awaitable(result) else result
        finally:  # an error has its words, too
            if self._is_marked(handler.owner):
                self._mark_answer(handler.owner.pid)

    def _mark_answer(self, giver: str) -> None:
        """Mark the process that asked: an answer of a marked process goes to it, past the middleware."""
        self._core.taint.pass_on_to_here(giver, "an answer of")
        for layer in self._middleware:
            self._mark_reader(layer.owner, f"an answer of {giver}")

    def _mark(self, reader: Any, message: BusMessage) -> None:
        """Mark a process that reads a message with text from outside: it has read such text."""
        if message.trust == _UNTRUSTED:
            self._mark_reader(reader, f"a message of type {message.type}")

    def _mark_reader(self, reader: Any, by: str) -> None:
        if reader is not None and reader.core is self._core and reader.exit is None:
            self._core.taint.mark(reader.pid, by)

    async def _fan_out(self, message: BusMessage) -> int:
        delivered = 0
        running: list[asyncio.Task[None]] = []
        here = acting()
        is_untrusted = message.trust == _UNTRUSTED
        for subscriber in list(self._subscribers.get(message.type, ())):
            if not subscriber.live:  # an earlier subscriber of this message has removed it
                continue
            if subscriber.user_id and subscriber.user_id != message.user_id:
                continue
            delivered += 1
            if is_untrusted:
                self._mark(subscriber.owner, message)
            try:
                result = (subscriber.given if subscriber.owner is here else subscriber.fn)(message)
            except Exception as error:  # noqa: BLE001 - an error in a subscriber must not stop the others
                self._report(message, error)
                continue
            if result is not None and _awaitable(result):
                running.append(self._core.tasks.start(self._run(message, result), name=f"lyra-bus {message.type}"))
        if running:
            await asyncio.gather(*running, return_exceptions=True)
        return delivered

    async def _run(self, message: BusMessage, work: Awaitable[Any]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as above
            self._report(message, error)

    def _report(self, message: BusMessage, error: Exception) -> None:
        self._core.loop.call_exception_handler(
            {"message": f"a subscriber of {message.type} failed", "exception": error}
        )

    # ------------------------------------------------------------------ middleware

    async def _through(self, message: BusMessage, act: Callable[[BusMessage], Awaitable[Any]]) -> Any:
        """Run `before` in order, then the act, then `after` in reverse order for those whose `before` has run."""
        passed: list[tuple[BusLayer, BusMessage]] = []
        result: Any = None
        error: BaseException | None = None
        stopped: NoSuchHandler | None = None  # the error that `after` gets when another middleware stopped the message
        try:
            for layer in tuple(self._middleware):
                self._mark(layer.owner, message)
                changed = message if layer.before is None else await _call(layer.before, message)
                if changed is None:
                    stopped = NoSuchHandler(
                        f"no handler registered for {message.type}: a middleware stopped the message", type=message.type
                    )
                    raise stopped
                if not isinstance(changed, BusMessage):
                    raise ConfigError(
                        f"a middleware gave {type(changed).__name__} for {message.type}",
                        hint="`before` gives the message, another BusMessage, or None to stop it",
                    )
                message = self._rewritten(layer, changed, message)
                passed.append((layer, message))
            result = await act(message)
        except BaseException as raised:  # noqa: BLE001 - `after` sees every outcome; the error is raised again below
            error = raised
        for layer, seen in reversed(passed):
            try:
                outcome = None if layer.after is None else await _call(layer.after, seen, result, error)
            except Exception as raised:  # noqa: BLE001 - then that is the outcome
                outcome = (None, raised)
            if outcome is not None and not _must_pass(error):
                result, error = _outcome(outcome, error)
                if self._is_marked(layer.owner):
                    self._mark_answer(layer.owner.pid)
        if error is stopped and message.category != "query":
            return None
        if error is not None:
            raise error
        return result

    def _rewritten(self, layer: BusLayer, message: BusMessage, before: BusMessage) -> BusMessage:
        """Return a message that a middleware gave in the place of another: it is the same user's. That of a marked
        process is untrusted, and so is one that was before."""
        if message is before:
            return message
        if message.user_id != before.user_id:
            message = msgspec.structs.replace(message, user_id=before.user_id)
        if not (before.trust == _UNTRUSTED or self._is_marked(layer.owner)):
            return message
        return msgspec.structs.replace(message, trust=_UNTRUSTED)

    def _is_marked(self, owner: Any) -> bool:
        return owner is not None and owner.core is self._core and self._core.taint.is_tainted(owner.pid)

    # ------------------------------------------------------------------ the end

    def _open(self) -> None:
        self._core.raise_if_elsewhere()
        core = self._core
        core.raise_if_failed()
        if not core.started or core.stopping:
            raise ProcessError("the kernel is not open", hint="use `async with Kernel(…) as kernel:`")

    def stop(self) -> None:
        """End all streams when the kernel closes."""
        for queue in list(self._queues):
            queue.close()


# ---------------------------------------------------------------------- helpers


def _awaitable(value: Any) -> bool:
    return hasattr(type(value), "__await__")


def _method(middleware: Any, name: str) -> Callable[..., Any] | None:
    method = getattr(middleware, name, None)
    return as_registered(method) if callable(method) else None


async def _call(method: Callable[..., Any], *args: Any) -> Any:
    """Return a method that may be plain or async."""
    result = method(*args)
    return await result if _awaitable(result) else result


def _outcome(outcome: Any, error: BaseException | None) -> tuple[Any, BaseException | None]:
    if isinstance(outcome, tuple) and len(outcome) == 2 and (outcome[1] is None or isinstance(outcome[1], Exception)):
        return outcome
    return outcome, error


def _must_pass(error: BaseException | None) -> bool:
    """Return whether an error may not be replaced: cancellation, and errors that end the whole process."""
    return error is not None and not isinstance(error, Exception)


def _no_handler(message_type: str) -> NoSuchHandler:
    return NoSuchHandler(
        f"no handler registered for {message_type}", hint="kernel.bus.register_handler(type, fn)", type=message_type
    )


def _check_callable(fn: Any, what: str) -> None:
    if not callable(fn):
        raise ConfigError(f"{what} is a function of one message, not {fn!r}")
