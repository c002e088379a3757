"""A circuit breaker for the bus: messages for a handler that keeps failing are refused for a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lyra.core.checking.check import known_keys
from lyra.core.clock import Clock
from lyra.core.policies.breaker import Breaker, CircuitBreaker, counts_as_failure
from lyra.errors import CircuitOpen, ConfigError
from lyra.kernel.bus.message import BusMessage


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
        known_keys(settings, CircuitBreaker.__struct_fields__, "circuit_breaker")
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
