"""One question to a model, as an Effect: quoted, reserved, streamed, folded, settled.

`Ask` is what goes through the door. The journal knows it by its digest (what is asked), not by its content, so a
thousand turns are not hashed each time. `quote` runs when the call is made: it says what the call may cost at most,
and clamps the answer's length to what the money and the tokens left can pay. `perform` runs for each try.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec

from lyra.agents.session.replies import Sink
from lyra.agents.turn.key_filter import Veil, veiled
from lyra.core.budgets.budget import NOTHING, Budget, Reservation, Usage
from lyra.core.effect import Charged, Effect
from lyra.core.policies.rate import RateLimit
from lyra.core.policies.retry import Retry
from lyra.errors import BudgetExceeded, ConfigError, DeadlineExceeded, ModelError
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider
from lyra.models.request import Request
from lyra.models.stream import Completion, Fold, StreamEvent, TextDelta, ThinkingDelta, is_unchanged
from lyra.models.tokens import ConversationTokens
from lyra.models.usage import TokenUsage
from lyra.models.wire.faults import fault

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import Agent
    from lyra.agents.session.early_call import Ahead
    from lyra.agents.session.shared import Runtime
    from lyra.models.wire.http import Timeouts

__all__ = ["Ask", "expected", "model_effect"]

ANSWER_TOKENS_MIN: Final = 1  # less than one token is no answer


class Ask:
    """The question, and what is known of the call while it is made."""

    # What most calls never change is here, not in each of them.
    effect = ""  # its name at the door
    estimated = False
    price: Price | None = None
    model = ""
    limit: RateLimit | None = None  # of the model, shared by all agents
    provider: LLMProvider | None = None
    attempts = 0  # 0 after the call: its answer came from the journal
    began_s = 0.0  # of the first try
    micro_usd: int | None = None
    reservations: tuple[Reservation, ...] = ()
    extra: tuple[Reservation, ...] = ()
    budget: Budget | None = None  # the process's
    call: Ahead | None = None  # that it belongs to, where that is made ahead of its turn
    lost = uncovered = NOTHING  # what tries that failed have cost: all of it, and what is not set aside
    lost_tokens = TokenUsage()
    guess = NOTHING  # what a try that was cut off is thought to have cost, where somebody counts that
    quoted = NOTHING
    is_last = True  # of the models that may be asked
    retry: Retry | None = None

    def __init__(
        self,
        runtime: Runtime,
        request: Request,
        digest: bytes,
        conversation: ConversationTokens,
        *,
        scopes: tuple[Budget, ...],
        sink: Sink | None,
        timeouts: Timeouts | None,
        counts_tokens: bool,
        pid: str = "",
    ) -> None:
        self.runtime = runtime
        self.pid = pid  # of the process that asks
        self.request = request
        self.digest = digest
        self.conversation = conversation
        self.scopes = scopes
        self.sink = sink
        self.timeouts = timeouts
        self.counts_tokens = counts_tokens  # somebody limits tokens a minute

    def to_data(self) -> bytes:
        """What the journal's hash of the call is made of."""
        return self.digest

    def aim(self, found: tuple[LLMProvider, str, str]) -> None:
        """Turn to a model that `Runtime.find` has found: the agent's own, or the next one to fall back to.

        What the one before cost is paid.
        """
        if self.lost.items:
            self.close()
            self.lost = self.uncovered = NOTHING
            self.lost_tokens = TokenUsage()
        self.provider, name, self.model = found
        if self.request.model != name:
            self.request = msgspec.structs.replace(self.request, model=name)
        self.attempts = 0
        self.price = None
        self.limit = None
        limits = self.runtime.settings.limits
        if limits:
            self.limit = limits.get(self.model)
            if self.limit is not None and self.limit.tokens_per_minute is not None:
                self.counts_tokens = True

    def lose(self, counted: TokenUsage) -> None:
        """A try failed after its provider had counted tokens: they are paid for all the same."""
        if not counted.total_input and not counted.output_tokens:
            return
        self._count_lost(counted)
        self.uncovered = self._usage_of(counted)
        self.lost += self.uncovered

    def cut(self, counted: TokenUsage) -> None:
        """A try was cut off: nobody will say what it came to, so all that was set aside for it counts as spent."""
        known = self._usage_of(counted)
        spent = self.quoted if self.estimated else known
        if not spent.usd and known.usd:  # only money that is limited is set aside
            spent += Usage(usd=known.usd)
        self._count_lost(counted)
        self.lost += spent
        if not spent.usd:
            self._guess_in_scopes()
        self.settle(self.lost)

    def _guess_in_scopes(self) -> None:
        """What was on its way is paid for, whoever gave it up: for scopes that count that, what the question costs."""
        guess = self._usage_of(TokenUsage(input_tokens=self.quoted["input_tokens"]))
        for scope in self.scopes:
            if scope.cut_off(guess):
                self.guess = guess

    def _count_lost(self, counted: TokenUsage) -> None:
        self.learn(counted)  # a provider that counts more than was thought must not surprise us twice
        self.lost_tokens = self.lost_tokens + counted if self.lost.items else counted

    def learn(self, counted: TokenUsage) -> None:
        """What a provider counted; of a call ahead of its turn, others hear when its turn comes."""
        if self.estimated:
            later = self.call.later if self.call is not None and not self.call.is_due else None
            self.conversation.learn(self.model, self.request, counted, later)

    def all_tokens(self, completion: Completion | None) -> TokenUsage:
        """What the call took with all its tries."""
        if completion is None:
            return self.lost_tokens
        return completion.usage + self.lost_tokens if self.lost.items else completion.usage

    def _usage_of(self, counted: TokenUsage) -> Usage:
        price = self.price or self.runtime.price(self)
        micro_usd = price.cost(counted) if price is not None else 0
        return Usage.of_call(micro_usd, counted.total_input, counted.output_tokens)

    @property
    def all_micro_usd(self) -> int | None:
        """What the call came to with all its tries; None where that is not known."""
        if not self.lost.items:
            return self.micro_usd
        lost = int(self.lost.usd)
        if self.micro_usd is None:
            return lost or None
        return self.micro_usd + lost

    def cover(self) -> None:
        """Before another try: what was set aside is for this one, so the one before needs room of its own."""
        uncovered, self.uncovered = self.uncovered, NOTHING
        if uncovered.items:
            for scope in (self.budget, *self.scopes):
                if scope is not None:
                    self.extra = (*self.extra, scope.reserve(uncovered))

    def warn(self) -> None:
        """Tell of the caller's scopes that only warn and were passed; the door tells of the process's own."""
        over = [excess.to_data() for reservation in self.reservations for excess in reservation.over]
        if over:
            self.runtime.kernel.publish(self.pid, "budget.warning", {"effect": self.effect, "over": over})

    def close(self) -> None:
        """The caller's scopes: what was lost is spent, the rest of what was set aside is free again."""
        self.settle(self.lost)

    def settle(self, usage: Usage) -> None:
        """The same for what the call has come to."""
        if not self.extra and not self.reservations:  # no scopes but the process's own, which is the door's
            return
        extra, self.extra = self.extra, ()
        for reservation in extra:
            reservation.scope.release(reservation)
        reservations, self.reservations = self.reservations, ()
        for reservation in reservations:
            if reservation.open:
                reservation.scope.settle(reservation, usage)


def model_effect(agent: Agent, model: str | LLMProvider, ask: Ask) -> Effect:
    """The effect of asking one model for one agent: with that agent's retry, rate limit and circuit breaker.

    A limit of the model itself is the kernel's, and an agent may be spawned in several.
    """
    key = model if ask.limit is None else (model, ask.model, ask.limit)
    found: Effect | None = agent.effects.get(key)
    if found is None:
        label = model if isinstance(model, str) else model.name
        found = agent.effects[key] = Effect(
            perform,
            name=f"model:{agent.name}:{label}",
            idempotent=True,  # nothing out there changes; only money is lost by asking twice, and only after a crash
            retry=agent.retry,
            rate_limit=agent.rate_limit,
            circuit_breaker=agent.circuit_breaker,
            quote=quote,
            shared=None if ask.limit is None else (ask.model, ask.limit),
            lasting=True,
            unchanged=is_unchanged,
        )
    ask.effect, ask.retry = found.name, agent.retry
    return found


# ---------------------------------------------------------------------- before


def quote(budget: Budget, ask: Ask) -> Usage:
    """The most this call may cost; what the caller's own scopes have to say is settled here too."""
    ask.budget = budget
    if not ask.scopes:
        if not (budget.limits_money or budget.limits_tokens or ask.counts_tokens):
            return _ONE_CALL
        ask.quoted = _worst_case(ask, (budget,), budget.limits_money)
        return ask.quoted
    ask.close()
    chains = (budget, *ask.scopes)
    ask.quoted = _worst_case(ask, chains, any(scope.limits_money for scope in chains))
    ask.reservations = _reserve_in(ask.scopes, ask.quoted)
    ask.warn()
    return ask.quoted


def expected(budget: Budget, ask: Ask) -> Usage:
    """What `quote` will say, with nothing set aside."""
    chains = (budget, *ask.scopes)
    if not ask.counts_tokens and not any(scope.limits_money or scope.limits_tokens for scope in chains):
        return _ONE_CALL
    return _worst_case(ask, chains, any(scope.limits_money for scope in chains))


_ONE_CALL: Final = Usage(llm_calls=1)


def _worst_case(ask: Ask, chains: tuple[Budget, ...], limits_money: bool) -> Usage:
    request = ask.request
    ask.estimated = True
    tokens_in = ask.conversation.estimate(ask.model, request)
    tokens_out = request.max_tokens or 0
    for scope in chains:
        left = scope.spendable("output_tokens") if scope.limits_tokens else None
        if left is not None and left < tokens_out:
            tokens_out = max(left, ANSWER_TOKENS_MIN)
    usd = 0
    if limits_money:
        price = ask.price = ask.runtime.price(ask)
        if price is None:
            raise ConfigError(
                f"the price of {ask.model} is unknown, so a money budget cannot hold it",
                hint="give its price under [prices] in lyra.toml, or use a budget of tokens",
                model=ask.model,
            )
        usd = price.worst_case(tokens_in, tokens_out)
        for scope in chains:
            left = None if scope.covers("usd", usd) else scope.spendable("usd")
            if left is not None:
                tokens_out = max(min(price.affordable_output(left, tokens_in), tokens_out), ANSWER_TOKENS_MIN)
                usd = price.worst_case(tokens_in, tokens_out)
    if tokens_out != request.max_tokens:
        ask.request = msgspec.structs.replace(request, max_tokens=tokens_out)
    return Usage.of_call(usd, tokens_in, tokens_out)


def _reserve_in(scopes: tuple[Budget, ...], usage: Usage) -> tuple[Reservation, ...]:
    made: list[Reservation] = []
    try:
        for scope in scopes:
            made.append(scope.reserve(usage))  # noqa: PERF401 (what was made before a refusal is given back)
    except BaseException:
        for reservation in made:
            reservation.scope.release(reservation)
        raise
    return tuple(made)


# ---------------------------------------------------------------------- the call


async def perform(ask: Ask, *, idempotency_key: str = "") -> Completion:
    """One try. Text goes to the caller as it comes; the answer is the fold of the stream.

    The key is the call's own, the same for each of its tries and after a crash.
    """
    runtime = ask.runtime
    if ask.lost.items:
        try:
            ask.cover()
        except BudgetExceeded as error:  # no room for another try; the ones before are paid for all the same
            error.usage = ask.lost  # type: ignore[attr-defined]  # the door charges what a failure has cost
            raise
    ask.attempts += 1
    if ask.attempts == 1:
        ask.began_s = runtime.kernel.clock.monotonic()
    sink = ask.sink
    provider = ask.provider
    assert provider is not None
    fold = Fold()
    request = ask.request
    if idempotency_key:
        request = msgspec.structs.replace(request, idempotency_key=runtime.key(ask, idempotency_key))
    source = provider.stream(request)
    events = source if ask.timeouts is None else _in_time(source, ask.timeouts, provider.name)
    try:
        if sink is None:
            feed = fold.feed
            async for event in events:
                feed(event)
        else:
            await _shown(fold, events, sink, runtime.known)
        completion = fold.completion()
        if runtime.known:
            completion = veiled(completion, runtime.known)
        if sink is not None:
            completion = _settled(sink, completion, is_kept=runtime.kernel.journal is not None)
    except GeneratorExit:  # the program is being closed, and the stream with it; nothing can be awaited any more
        raise
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, DeadlineExceeded):
            ask.lose(fold.usage)
        else:  # cancelled, or the time of the process is up; a model that is late is a ModelError
            ask.cut(fold.usage)
        if ask.lost.items:
            error.usage = ask.lost  # type: ignore[attr-defined]  # the door charges what a failure has cost
        await _closed(source)
        if runtime.unfit is not None and _is_away(error, ask):
            await runtime.lacks(runtime.kernel.processes[ask.pid], error)
        raise
    runtime.has_answered = True
    usage = _spent(ask, completion)
    if ask.lost.items:
        usage += ask.lost
    ask.settle(usage)
    return Charged(completion, usage)  # type: ignore[return-value]  # the door takes the usage off


def _is_away(error: BaseException, ask: Ask) -> TypeGuard[ModelError]:
    """Whether the provider cannot be asked from here at all: it never was in this life of the kernel, and there will
    be no other try."""
    if ask.runtime.has_answered or not ask.is_last or not isinstance(error, ModelError) or error.kind not in _AWAY:
        return False
    return ask.retry is None or not ask.retry.should_retry(error, ask.attempts)


_AWAY: Final = ("connection", "auth")


async def _shown(fold: Fold, events: AsyncIterator[StreamEvent], sink: Sink, known: tuple[str, ...]) -> None:
    """Feed the fold, and show what comes; no key that we know is in it."""
    sink.begin()
    text, thought = Veil(known), Veil(known)
    async for event in events:
        fold.feed(event)
        kind = type(event)
        if kind is TextDelta:
            piece: str = event.text  # type: ignore[union-attr]  # told apart by type
            sink.text(text.feed(piece) if known else piece)
            if sink.full:
                await sink.room()
        elif kind is ThinkingDelta:
            piece = event.text  # type: ignore[union-attr]  # told apart by type
            sink.thinking(thought.feed(piece) if known else piece)
    if known:
        sink.thinking(thought.rest())
        sink.text(text.rest())


def _settled(sink: Sink, completion: Completion, *, is_kept: bool) -> Completion:
    """The whole answer; a journal has its pieces too, so that whoever reads it again is shown the same."""
    lengths = sink.settle()
    return msgspec.structs.replace(completion, pieces=lengths) if is_kept else completion


async def _closed(source: Any) -> None:
    """A stream that is left in the middle gives its connection back now, not when somebody collects it."""
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


def _spent(ask: Ask, completion: Completion) -> Usage:
    counted = completion.usage
    ask.learn(counted)
    price = ask.price
    if price is None:
        price = ask.runtime.price(ask)
    ask.micro_usd = price.cost(counted) if price is not None else None
    return Usage.of_call(ask.micro_usd or 0, counted.total_input, counted.output_tokens)


async def _in_time(events: AsyncIterator[StreamEvent], timeouts: Timeouts, name: str) -> AsyncIterator[StreamEvent]:
    """The same events, or a time-out: until the first, between two, and over all. What the reader does with a piece
    does not count."""
    left_s = timeouts.total_s
    limit_s, what = timeouts.first_s, "began to answer"
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        whole = left_s is not None and (limit_s is None or left_s < limit_s)
        try:
            async with asyncio.timeout(left_s if whole else limit_s) as waiting:
                event = await anext(events)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if not waiting.expired():
                raise
            said = (
                f"{name} took longer than {timeouts.total_s:g} s"
                if whole
                else f"{limit_s:g} s passed before {name} {what}"
            )
            raise fault("timeout", said, provider=name) from None
        if left_s is not None:
            left_s -= loop.time() - began_s
        limit_s, what = timeouts.idle_s, "sent the next piece of its answer"
        yield event
