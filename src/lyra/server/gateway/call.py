"""GatewayCall: one request on its way to one model, and the effect that performs it.

`quote` reserves the most that the call may cost, and lowers the bound of the answer to what the budget's money pays;
`forward` sends the bytes, passes the answer's bytes to the client through `Relay`, and settles with the usage that
the provider tells (`charge_call`). A call is performed by the door under a passing key: it is never made again by a
restart, and what was reserved for one that a crash cut off is charged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.turn.model_effect import StreamKeyFilter
from lyra.core.budgets.budget import Budget, Usage
from lyra.core.effect import Charged, Effect
from lyra.core.policies.retry import Backoff, Retry
from lyra.errors import BudgetExceeded, CircuitOpen, ConfigError, ModelError
from lyra.models.answers import AnswerHead, vendor_writer
from lyra.models.client import stream_of
from lyra.models.requests import CARRIED, READERS, VendorRequest
from lyra.models.stream import TokenUsage
from lyra.models.tokens import TOOLS_TOKENS, WORDY
from lyra.models.wire.remote import RemoteProvider
from lyra.server.gateway.bounds import (
    BoundedTools,
    answer_least,
    choices,
    input_bound,
    output_bound,
    refuse_unbounded,
    select_bounded_tools,
    thinking_beside,
)
from lyra.server.gateway.relay import AnswerMeter, Relay
from lyra.server.gateway.targets import (
    ModelTarget,
    answer_headers,
    money_held,
    read_refusal,
    upstream_headers,
    upstream_url,
)
from lyra.server.http.endpoint import RawAnswer

if TYPE_CHECKING:
    from lyra.core.policies.breaker import Breaker
    from lyra.core.secrets.known_keys import KnownKeys
    from lyra.models.pricing import Price
    from lyra.models.wire.http import UnreadAnswer
    from lyra.server.gateway.keys import GatewayKey
    from lyra.server.gateway.request import GatewayRequest


_PATIENCE_S: Final = 5.0  # a provider that asks for a longer pause is not tried again: the client is told
_LINGER_S: Final = 0.25  # a finished answer's connection may end by itself and be used again


class GatewayRetry(Retry, frozen=True):
    """Another try, unless the client has a part of the answer already, the provider asks for a long pause, or the try
    that failed is charged to a budget: one reservation does not pay for two."""

    def should_retry(self, error: BaseException, attempt: int) -> bool:
        if isinstance(error, CircuitOpen) or not isinstance(error, ModelError):
            return False
        if error.fields.get("begun") or error.fields.get("billed"):
            return False
        return float(error.fields.get("retry_after_s") or 0) <= _PATIENCE_S and super().should_retry(error, attempt)


_RETRY: Final = GatewayRetry(max_attempts=2, backoff=Backoff(initial_s=0.25, factor=2.0, max_s=2.0, jitter=0.2))


class GatewayCall:
    """See the module."""

    def __init__(
        self,
        call_id: str,
        key: GatewayKey,
        request: GatewayRequest,
        target: ModelTarget,
        *,
        headers: Mapping[str, str],
        query: str,
        relay: Relay,
    ) -> None:
        self.id = call_id
        self.key = key
        self.request = request
        self.target = target
        self.headers = headers
        self.query = query
        self.relay = relay
        self.body = b""
        self.translated: VendorRequest | None = None  # where the provider speaks another format
        self.tools_left_out: tuple[str, ...] = ()  # types of tools that a budget cannot hold, and the request can spare
        self.bound_lowered: int | None = None  # the bound of the answer, where it is not the request's own
        self.quoted = Usage()
        self.is_limited = False  # by a budget: what is quoted bounds the cost
        self.meter = AnswerMeter(request.format, request.stream)
        self.micro_usd: int | None = None
        self.tokens: TokenUsage | None = None  # those that the last try took, once that is known
        self.refusal: RawAnswer | None = None  # the provider's own words, where it refused
        self.answer: RawAnswer | None = None
        self.tries = 0
        self._bound: int | None = None  # of the answer, where a budget limits the call
        self._input_tokens: int | None = None  # the bound of the input, once it is known
        self._tools = BoundedTools()

    def to_data(self) -> bytes:
        """Return what the journal knows the call by."""
        return self.id.encode()

    # ------------------------------------------------------------------ before

    def prepare(self, budget: Budget) -> Usage:
        """Return the most that the call may cost, and the body that keeps to it."""
        request, price = self.request, self.target.price
        if self.quoted and not self.is_limited and not budget.limits_money:
            return self.quoted  # prepared before, and no money limits it
        self.bound_lowered = None
        if request.format.is_free:
            self.body = self._body()
            return self.quoted
        if budget.limits_money and not self.is_limited:
            self.is_limited, self._input_tokens = True, None  # what has no bound is refused from now on
        # The most tokens that the input can be. What has no bound is refused, where a budget needs one; this is done
        # once, before the call and not again when it is reserved.
        if self._input_tokens is None:
            if self.is_limited:
                if self.target.price is None:
                    raise ConfigError(
                        f"the price of {self.target.name} is unknown, so the key's budget cannot hold it",
                        hint="the operator can give its price under [prices] in lyra.toml",
                    )
                self._tools = select_bounded_tools(self.request)
                refuse_unbounded(self.request, self._tools)
            self._input_tokens = input_bound(self.request, self.target.model) + self._estimate_added()
        tokens_in = self._input_tokens
        if self.is_limited:
            assert price is not None
            self._bound = tokens_out = self._affordable(budget, price, tokens_in)
            if tokens_out != request.limit and request.format.limits:
                self.bound_lowered = tokens_out
            tokens_out = self._answer_tokens(tokens_out)
            quoted = Usage.from_call(price.worst_case(tokens_in, tokens_out), tokens_in, tokens_out)
        else:  # nothing is limited: what a crash would leave in doubt is the request itself
            probable = TokenUsage(int(tokens_in * WORDY))
            quoted = Usage.from_call(0 if price is None else price.cost(probable), probable.input_tokens, 0)
        self.quoted = quoted
        if self.target.is_native:
            self.body = self._body()
        else:
            self.translated = self._translate(self._bound)
        return quoted

    def _estimate_added(self) -> int:
        """Return the most tokens that a translation adds to the request: the provider's format may say more in
        words."""
        provider = self.target.provider
        if not self.is_limited or self.target.is_native or not isinstance(provider, RemoteProvider):
            return 0
        body = provider.body(self._translate(None).request)
        return TOOLS_TOKENS + max(0, len(msgspec.json.encode(body)) - self.request.size_bytes)

    def _translate(self, limit: int | None) -> VendorRequest:
        """Return the request in Lyra's own form; `limit` is a bound of the answer in place of the request's own."""
        read = READERS.get(self.request.format.name)
        if read is None:
            raise CARRIED.refusal(f"a request for {self.request.format.name}")
        translated = read(self.request.data(), CARRIED)
        changes = {} if limit is None else {"max_tokens": limit}
        return translated._replace(
            request=msgspec.structs.replace(translated.request, model=self.target.model, **changes)
        )

    def _body(self) -> bytes:
        """Return the client's bytes, with the provider's name for the model."""
        request = self.request
        changes: dict[str, Any] = {"model": self.target.model}
        if self._bound is not None and request.format.limits:
            # The members that bound the answer: those that the request has, else the provider's usual one.
            names = self.request.format.limits
            usual = names[0 if self.target.provider.name in ("openai", "azure") or len(names) == 1 else -1]
            changes |= dict.fromkeys(list(self.request.limits) or [usual], self._bound)
        if self._tools.kept is not None:
            changes["tools"], self.tools_left_out = self._tools.kept, self._tools.left_out
        if request.format.name == "chat" and request.stream:
            # Have a stream of chat completions tell its usage; a client that did not ask for it does not see it.
            options = self.request.values.get("stream_options")
            options = options if isinstance(options, dict) else {}
            if options.get("include_usage") is not True:
                changes["stream_options"] = {**options, "include_usage": True}
                self.meter.hides_usage = True
        return request.body(changes)

    def _affordable(self, budget: Budget, price: Price, tokens_in: int) -> int:
        """Return the bound of the answer that the money left pays. Where that is too short: RateLimited if money that
        calls in flight hold would pay for it, else BudgetExceeded."""
        left, unspent = budget.spendable("usd"), budget.spendable("usd", with_reserved=True)
        tokens = self._limit_answer(left, price, tokens_in)
        if tokens is not None:
            return tokens
        if self._limit_answer(unspent, price, tokens_in) is not None:
            raise money_held((unspent or 0) - (left or 0))
        raise BudgetExceeded(
            "the key's budget is used up, or does not pay for this call",
            hint="ask the operator for more",
            remaining=left,
        )

    def _limit_answer(self, left: int | None, price: Price, tokens_in: int) -> int | None:
        """Return the bound of the answer that so much money pays; None where that is too short."""
        request = self.request
        wanted = output_bound(request, self.target.model)
        if left is None or price.worst_case(tokens_in, self._answer_tokens(wanted)) <= left:
            return wanted
        paid: int = price.affordable_output(left, tokens_in) // choices(request) - thinking_beside(request, wanted)
        is_enough = bool(request.format.limits) and paid >= min(wanted, answer_least(request))
        return min(paid, wanted) if is_enough else None

    def _answer_tokens(self, bound: int) -> int:
        """Return the most tokens that all answers together have, thoughts included, where each has this bound."""
        return (bound + thinking_beside(self.request, bound)) * choices(self.request)

    # ------------------------------------------------------------------ the call

    async def send(self) -> None:
        """Send the request, and pass the answer on."""
        if self.translated is not None:
            await self._pass_translated(self.translated)
            return
        provider, wire = self.target.provider, self.request.format
        assert isinstance(provider, RemoteProvider)
        url = upstream_url(provider, wire, self.target.model, self.query)
        headers = upstream_headers(provider, self.target.model, self.headers, self.key.settings.id)
        async with provider.http.forward(url, self.body, headers, stream=self.request.stream) as answer:
            if not 200 <= answer.status < 300:
                now = self.key.process.core.clock.now()
                error, self.refusal = await read_refusal(provider, answer, self.target.model, now)
                raise error
            if self.request.stream and "event-stream" in answer.headers.get("content-type", ""):
                relay, meter = self.relay, self.meter
                relay.begin(answer_headers(answer.headers))
                masked = AnswerFilter(self.target.keys)
                async for chunk in _until_done(answer.chunks, meter):
                    kept = masked.feed(meter.feed(chunk))
                    if kept:
                        await relay.put(kept, is_last=meter.done)
                if rest := masked.filter_all(meter.flush()):
                    await relay.put(rest, is_last=True)
                meter.close()
            else:
                await self._pass_whole(answer)

    async def _pass_translated(self, translated: VendorRequest) -> None:
        """Ask a provider that speaks another format, and write its answer in the client's."""
        relay, meter = self.relay, self.meter
        head = AnswerHead(self.request.model, self.id, int(self.key.process.core.clock.now()))
        writer = vendor_writer(self.request.format.name, head, with_usage=translated.with_usage)
        masked = AnswerFilter(self.target.keys)
        async for event in stream_of(self.target.provider, translated.request):
            meter.see(event)
            if self.request.stream:
                if not relay.has_begun:
                    relay.begin({})
                if piece := masked.feed(writer.event(event)):
                    await relay.put(piece, is_last=meter.done)
        completion = meter.completion()
        if not self.request.stream:
            self.answer = RawAnswer(masked.filter_all(msgspec.json.encode(writer.render_document(completion))))
        elif rest := masked.flush():
            await relay.put(rest, is_last=True)

    async def _pass_whole(self, answer: UnreadAnswer) -> None:
        body = await answer.read()
        self.meter.read(body)
        media = answer.headers.get("content-type", "application/json")
        masked = self.target.keys.mask_whole(body.decode(_BYTES_AS_TEXT)).encode(_BYTES_AS_TEXT)
        self.answer = RawAnswer(masked, media, answer.status, answer_headers(answer.headers))


async def _until_done(chunks: AsyncIterator[bytes], meter: AnswerMeter) -> AsyncIterator[bytes]:
    """Yield the pieces of a stream. After its last event, its connection has a moment to end by itself."""
    async for chunk in chunks:
        yield chunk
        if meter.done:
            break
    try:
        with suppress(ModelError):  # the answer is whole, however its connection ends
            async with asyncio.timeout(_LINGER_S) as lingering:
                async for chunk in chunks:
                    yield chunk
    except TimeoutError:
        if not lingering.expired():
            raise


def quote(budget: Budget, call: GatewayCall) -> Usage:
    return call.prepare(budget)


async def forward(call: GatewayCall) -> None:
    """Make one try. A client that left, or a key that was revoked, cuts it off: it is paid for all the same."""
    breaker: Breaker = call.target.breaker
    clock = call.key.process.core.clock
    breaker.admit(clock.monotonic())
    call.tries += 1
    call.refusal = None
    try:
        await call.send()
    except ModelError as error:
        from lyra.core.policies.breaker import counts_as_failure

        breaker.failure(clock.monotonic()) if counts_as_failure(error) else breaker.abandon()
        if call.meter.has_begun:
            error.fields["begun"] = True
        if call.meter.has_begun or (call.is_limited and may_be_billed(error)):
            error.fields["billed"] = True
            error.usage = charge_call(call, is_whole=False)  # type: ignore[attr-defined]  # the door charges it
        raise
    except BaseException as cut:
        breaker.abandon()
        if may_be_billed(cut):
            cut.usage = charge_call(call, is_whole=False)  # type: ignore[attr-defined]  # the door charges it
        raise
    breaker.success(clock.monotonic())
    return Charged(None, charge_call(call, is_whole=True))  # type: ignore[return-value]  # the door takes the usage off


def call_effect(payer: str, model: str) -> Effect:
    """Return the effect of calling one model with one key."""
    return Effect(forward, name=f"model:{payer}:{model}", retry=_RETRY, quote=quote)


# AnswerFilter: masks the keys of the server's providers in the bytes of an answer on their way to a client.

_BYTES_AS_TEXT: Final = "latin-1"  # a character for each byte; keys are sent in headers, so they are ASCII


class AnswerFilter:
    """One for each answer."""

    __slots__ = ("_filter",)

    def __init__(self, keys: KnownKeys) -> None:
        self._filter = StreamKeyFilter(keys)

    def feed(self, piece: bytes) -> bytes:
        """Return the bytes that can be passed on by now."""
        return self._filter.feed(piece.decode(_BYTES_AS_TEXT)).encode(_BYTES_AS_TEXT)

    def flush(self) -> bytes:
        """Return the bytes held back so far: no more comes."""
        return self._filter.flush().encode(_BYTES_AS_TEXT)

    def filter_all(self, body: bytes) -> bytes:
        """Return the bytes of a whole answer."""
        return self.feed(body) + self.flush()


# What a call through the gateway is charged, and whether a try that failed may be on the provider's bill.

_log: Final = logging.getLogger("lyra.server.gateway")
# Statuses by which a proxy in front of a provider says that it gave up waiting: the provider may have gone on.
_GAVE_UP: Final = frozenset({408, 499, 502, 504, *range(520, 528)})


def may_be_billed(error: BaseException) -> bool:
    """Return whether a provider may bill a try that ended so. A refusal with a status is free; so is what was never
    sent."""
    if isinstance(error, ConfigError):
        return False
    if not isinstance(error, ModelError):
        return True
    status = error.fields.get("status")
    if isinstance(status, int):
        return status < 400 or status in _GAVE_UP
    return not error.fields.get("unsent")


def charge_call(call: GatewayCall, *, is_whole: bool) -> Usage:
    """Return what a call is charged; sets what its record says that it cost."""
    if call.request.format.is_free:
        call.micro_usd = 0
        return call.quoted
    tokens = call.tokens = call.meter.tokens(call.quoted["input_tokens"], is_whole=is_whole)
    price = call.target.price
    call.micro_usd = None if price is None else price.cost(tokens)
    usage = Usage.from_call(call.micro_usd or 0, tokens.total_input, tokens.output_tokens)
    if not call.is_limited:
        return usage
    if tokens.estimated:
        usage = call.quoted
    elif usage["usd"] > call.quoted["usd"]:
        _log.warning(
            "%s told a usage of %s for a call that costs at most %s; the key is charged the latter",
            call.target.name,
            usage.usd,
            call.quoted.usd,
        )
        usage = Usage.from_call(
            *(min(usage[name], call.quoted[name]) for name in ("usd", "input_tokens", "output_tokens"))
        )
    call.micro_usd = usage["usd"]
    return usage
