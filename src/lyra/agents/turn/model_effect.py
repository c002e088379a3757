"""The model effect: one question to a model, quoted, reserved, streamed, folded, settled.

`quote` runs when the call is made: it says what the call may cost at most, and lowers the answer's length to what the
money and the tokens left can pay, not below the agent's `min_tokens`: then there is no room, and the call is refused.
`perform` runs for each try. An answer that ends at a lowered limit has the stop reason CUT_BY_BUDGET, and
`cut_by_budget` is the error that it is for an agent without `fit_budget`. The state of the call is a ModelCall.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeGuard

import msgspec

from lyra.agents.session.events import AgentEvent, Retrying
from lyra.agents.session.model_call import ANSWER_TOKENS_USUAL, ModelCall
from lyra.agents.session.replies import Sink, sink_above
from lyra.core.budgets.budget import Budget, Reservation, Usage
from lyra.core.effect import Charged, Effect
from lyra.core.policies.retry import error_text
from lyra.core.rights.capability import Capability
from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.tool import ToolCall
from lyra.errors import BudgetExceeded, ConfigError, DeadlineExceeded, LyraError, ModelError
from lyra.kernel.process.cut_short import deadline_behind
from lyra.models.provider import LLMProvider
from lyra.models.stream import (
    CUT_BY_BUDGET,
    CUT_BY_PROVIDER,
    Completion,
    Fold,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolDelta,
    ToolEnd,
    ToolStart,
    is_unchanged,
)
from lyra.models.wire.faults import fault, from_exception

if TYPE_CHECKING:
    from lyra.agents.session.session import AgentSession
    from lyra.models.settings import Timeouts


def model_effect(
    session: AgentSession, model: str | LLMProvider, call: ModelCall, *, verb: Literal["model", "search"] = "model"
) -> Effect:
    """Return the effect of asking one model for the session's agent, with that agent's retry, rate limit and circuit
    breaker.

    The full name and the limit of the model are part of the key: they belong to a kernel, and the cache serves all
    kernels. `verb` begins its name: a search is no answer of the conversation.
    """
    agent, effects = session.agent, session.cache.model_effects
    key = (model, call.model, call.limit, verb)
    effect = effects.get(key)
    if effect is None:
        label = model if isinstance(model, str) else model.name
        effect = effects[key] = Effect(
            perform,
            name=f"{verb}:{agent.name}:{label}",
            idempotent=True,  # asking twice changes nothing; it costs money, and only after a crash
            retry=agent.retry,
            rate_limit=agent.rate_limit,
            circuit_breaker=agent.circuit_breaker,
            quote=quote,
            needs=Capability("model.use", call.model),
            shared=None if call.limit is None else (call.model, call.limit),
            lasting=True,
            unchanged=is_unchanged,
            on_retry=_tell_retry,
        )
    call.effect, call.retry = effect.name, agent.retry
    return effect


_REASONS: Final[dict[str, str]] = {  # kinds of a ModelError, for a person who waits
    "rate_limit": "rate limited",
    "overloaded": "overloaded",
    "timeout": "no answer in time",
    "connection": "not reachable",
    "stream_truncated": "the answer broke off",
    "malformed": "the answer could not be read",
}


def _tell_retry(call: ModelCall, *, attempt: int, of: int, wait_s: float, error: BaseException) -> None:
    """Tell the reader of the answer, or of the answer that waits for this one, that the model is asked again."""
    process = call.runtime.kernel.processes.get(call.pid)
    sink = call.sink or call.waits_sink or (sink_above(process) if process is not None else None)
    if sink is not None:
        kind = str(error.fields.get("kind", "")) if isinstance(error, LyraError) else ""
        sink.put(Retrying(attempt, of, round(wait_s, 3), _REASONS.get(kind, "the provider failed")))


# ---------------------------------------------------------------------- before


def quote(budget: Budget, call: ModelCall) -> Usage:
    """Return the most this call may cost; reserves it in the caller's own scopes too."""
    call.budget = budget
    if not call.scopes:
        if not (budget.limits_money or budget.limits_tokens or call.counts_tokens):
            return _ONE_CALL
        call.quoted = _worst_case(call, (budget,), budget.limits_money)
        return call.quoted
    call.close()
    chains = (budget, *call.scopes)
    call.quoted = _worst_case(call, chains, any(scope.limits_money for scope in chains))
    call.reservations = _reserve_in(call.scopes, call.quoted)
    call.warn()
    return call.quoted


def estimate_usage(budget: Budget, call: ModelCall) -> Usage:
    """Return the figure of `quote` without reserving anything."""
    chains = (budget, *call.scopes)
    if not call.counts_tokens and not any(scope.limits_money or scope.limits_tokens for scope in chains):
        return _ONE_CALL
    return _worst_case(call, chains, any(scope.limits_money for scope in chains))


_ONE_CALL: Final = Usage(llm_calls=1)


def _worst_case(call: ModelCall, chains: tuple[Budget, ...], limits_money: bool) -> Usage:
    request = call.request
    call.estimated = True
    tokens_in = call.conversation.estimate(call.model, request)
    wanted, least = call.tokens_wanted, call.tokens_least
    if call.has_own_limit:
        wanted = _share(call, chains, tokens_in)
    tokens_out = wanted
    for scope in chains:
        left = scope.spendable("output_tokens") if scope.limits_tokens else None
        if left is not None and left < tokens_out:
            tokens_out = max(left, least)
    usd = 0
    if limits_money:
        price = call.price = call.find_price()
        if price is None:
            raise ConfigError(
                f"the price of {call.model} is unknown, so a money budget cannot hold it",
                hint="give its price under [prices] in lyra.toml, or use a budget of tokens",
                model=call.model,
            )
        usd = price.worst_case(tokens_in, tokens_out)
        for scope in chains:
            left = None if scope.covers("usd", usd) else scope.spendable("usd")
            if left is not None:
                tokens_out = max(min(price.affordable_output(left, tokens_in), tokens_out), least)
                usd = price.worst_case(tokens_in, tokens_out)
    call.is_shortened = tokens_out < wanted
    is_limited = limits_money or any(scope.limits_tokens for scope in chains)
    if call.has_own_limit and not is_limited:  # only a rate limit counts the tokens
        call.request = msgspec.structs.replace(request, max_tokens=None)
    elif tokens_out != request.max_tokens:
        call.request = msgspec.structs.replace(request, max_tokens=tokens_out)
    return Usage.from_call(usd, tokens_in, tokens_out)


_SHARE: Final = 4  # of what is left in a budget, one call reserves at most this part


def _share(call: ModelCall, chains: tuple[Budget, ...], tokens_in: int) -> int:
    """Return the longest answer to reserve for a call that names none: the model's own, or a part of what the budgets
    have left, so that calls beside it find room too. An answer that is cut there goes on."""
    wanted = call.tokens_wanted
    if wanted <= ANSWER_TOKENS_USUAL:
        return wanted
    rooms: list[int] = []
    price = call.price or call.find_price()
    for scope in chains:
        if scope.limits_tokens and (tokens := scope.spendable("output_tokens")) is not None:
            rooms.append(tokens)
        if scope.limits_money and price is not None and (micro_usd := scope.spendable("usd")) is not None:
            rooms.append(price.affordable_output(micro_usd, tokens_in))
    if not rooms:
        return ANSWER_TOKENS_USUAL
    return max(ANSWER_TOKENS_USUAL, min(wanted, min(rooms) // _SHARE))


def _reserve_in(scopes: tuple[Budget, ...], usage: Usage) -> tuple[Reservation, ...]:
    reservations: list[Reservation] = []
    try:
        for scope in scopes:
            reservations.append(scope.reserve(usage))  # noqa: PERF401 (those before a refusal are released)
    except BaseException:
        for reservation in reservations:
            reservation.scope.release(reservation)
        raise
    return tuple(reservations)


# ---------------------------------------------------------------------- the call


async def perform(call: ModelCall, *, idempotency_key: str = "") -> Completion:
    """Make one try: pass text to the caller as it comes, and fold the stream into the answer.

    The idempotency key belongs to the call: it is the same for each try, also after a crash.
    """
    runtime, sink, provider = call.runtime, call.sink, call.provider
    if call.lost.packed:
        _cover(call)
    call.attempts += 1
    if call.attempts == 1:
        if call.model not in runtime.models.priced:
            runtime.models.look_up_price(provider, call.request.model, call.model)
        call.began_s = runtime.kernel.clock.monotonic()
    fold = Fold(takes_problems=True)
    request = call.request
    if idempotency_key:
        request = msgspec.structs.replace(request, idempotency_key=runtime.key(call, idempotency_key))
    source: AsyncIterator[StreamEvent] | None = None
    try:
        source = provider.stream(request)
        events = source if call.timeouts is None else _in_time(source, call.timeouts, provider.name)
        if sink is None:
            feed, texts = fold.feed, fold.texts
            async for event in events:
                if type(event) is TextDelta and type(event.text) is str:
                    texts.append(event.text)
                else:
                    feed(event)
        else:
            await _stream_to(fold, events, sink, runtime.keys.prepared)
        completion = fold.completion()
        usage = completion.usage
        if completion.stop_reason == CUT_BY_PROVIDER or not usage.output_tokens or not usage.input_tokens:
            completion = _mark_answer(call, completion)
        keys = runtime.keys.prepared
        if keys.wholes:
            completion = redact_keys(completion, keys)
        if sink is not None:
            completion = _settle(sink, completion, is_journaled=runtime.kernel.journal is not None)
    except GeneratorExit:  # the program is being closed: nothing can be awaited any more
        raise
    except BaseException as raised:
        quotes_key = _quotes_key(raised, runtime.keys.prepared)
        failure = _count_failed_try(call, fold, _without_keys(_classify(call, raised), runtime.keys.prepared))
        _name_tries(failure, call)
        await _close(source)
        if runtime.unfit is not None and _is_unreachable(failure, call):
            await runtime.lacks(runtime.kernel.processes[call.pid], failure)
        if failure is not raised:
            raise failure from (None if quotes_key else raised)
        raise
    runtime.has_answered = True
    return Charged(completion, _settle_cost(call, completion))  # type: ignore[return-value]  # the door takes the usage off


def _cover(call: ModelCall) -> None:
    try:
        call.cover()
    except BudgetExceeded as error:  # no money for another try; the tries before are paid for all the same
        error.usage = call.lost  # type: ignore[attr-defined]  # the door charges what a failure has cost
        raise


def _classify(call: ModelCall, raised: BaseException) -> BaseException:
    """Return what a provider raised as a ModelError. A cancellation is one too, unless the call itself is cancelled:
    something inside the provider that it waited for was."""
    name, task = call.provider.name, asyncio.current_task()
    if not isinstance(raised, asyncio.CancelledError):
        return from_exception(raised, name) or raised
    if call.runtime.kernel.stopping or task is None or task.cancelling():
        return raised
    return fault("temporary", f"{name or 'the provider'} failed: CancelledError", provider=name)


def _quotes_key(error: BaseException, keys: KnownKeys) -> bool:
    text = error_text(error)
    return keys.mask(text, any_part=True) != text


def _without_keys(error: BaseException, keys: KnownKeys) -> BaseException:
    """Return the error of a provider, which goes to the journal and to the caller, with the keys masked that it
    quotes."""
    if not isinstance(error, LyraError):
        return error  # a cancellation quotes nothing
    error.message = keys.mask(error.message, any_part=True)
    others = (keys.mask(value, any_part=True) if isinstance(value, str) else value for value in error.args[1:])
    error.args = (error.message, *others)
    error.hint = keys.mask(error.hint, any_part=True) if error.hint else error.hint
    for name, value in error.fields.items():
        if isinstance(value, str):
            error.fields[name] = keys.mask(value, any_part=True)
    return error


def _mark_answer(call: ModelCall, completion: Completion) -> Completion:
    """Return the answer with tokens that its provider did not count, marked where it ended because the budget did. An
    Event tells of one that was cut off."""
    usage = completion.usage
    if not usage.output_tokens or not usage.total_input:
        completion = msgspec.structs.replace(completion, usage=call.complete_usage(usage, completion.message))
    if completion.stop_reason != CUT_BY_PROVIDER:
        return completion
    facts = {"effect": call.effect, "max_tokens": call.request.max_tokens}
    if not call.is_shortened:
        call.runtime.kernel.publish(call.pid, "answer.cut", facts)
        for tell in call.runtime.cut_listeners:
            tell(call.pid)
        return completion
    call.runtime.kernel.publish(call.pid, "budget.cut", {**facts, "wanted": call.tokens_wanted})
    return msgspec.structs.replace(completion, stop_reason=CUT_BY_BUDGET)


def _count_failed_try(call: ModelCall, fold: Fold, raised: BaseException) -> BaseException:
    """Count what a failed try has cost; gives its error, which is the deadline where that is behind it."""
    error = raised
    if isinstance(raised, Exception) and call.runtime.is_out_of_time(call.pid):
        error = deadline_behind(raised) or raised
    if isinstance(error, Exception) and not isinstance(error, DeadlineExceeded):
        call.lose(fold.usage, fold.message, is_final=fold.finished)
    else:  # cancelled, or the process's deadline has passed (a model's own time-out is a ModelError)
        call.cut(fold.usage, fold.message)
    if call.lost.packed:
        error.usage = call.lost  # type: ignore[attr-defined]  # the door charges what a failure has cost
    return error


def _name_tries(failure: BaseException, call: ModelCall) -> None:
    """Have the error of the last try name the provider, the status and, of several, the number of tries."""
    if not isinstance(failure, ModelError) or (call.attempts < 2 and "status" not in failure.fields):
        return
    if call.retry is not None and call.retry.should_retry(failure, call.attempts):
        return
    provider, status = failure.fields.get("provider"), failure.fields.get("status")
    facts = [str(provider)] if provider else []
    facts += [f"status {status}"] if status else []
    facts += [f"after {call.attempts} tries"] if call.attempts > 1 else []
    failure.message = f"{failure.message} ({', '.join(facts)})"
    failure.args = (failure.message, *failure.args[1:])
    failure.fields["tries"] = call.attempts


def cut_by_budget(
    name: str, text: str, *, cost_usd: float | None, input_tokens: int, output_tokens: int
) -> BudgetExceeded:
    """Return the error of an answer that ended where the budget of agent `name` did; it has the text, and what that
    cost."""
    cost = "" if cost_usd is None else f", which cost ${cost_usd:.6f}".rstrip("0").rstrip(".")
    return BudgetExceeded(
        f"the budget of agent {name} ended in the middle of an answer, after {len(text)} characters{cost}",
        hint="raise the budget, lower max_tokens, or set fit_budget to take answers that were cut",
        agent=name,
        partial=text,
        cost_usd=cost_usd,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


def cut_of_call(name: str, call: ModelCall, completion: Completion) -> BudgetExceeded:
    """Tell that a call was cut which is beside the answers of agent `name`: a summary, a text for an MCP server."""
    usage, micro_usd = call.all_tokens(completion), call.all_micro_usd
    return cut_by_budget(
        name,
        completion.text,
        cost_usd=None if micro_usd is None else micro_usd / 1_000_000,
        input_tokens=usage.total_input,
        output_tokens=usage.output_tokens,
    )


def _is_unreachable(error: BaseException, call: ModelCall) -> TypeGuard[ModelError]:
    """Return whether the provider cannot be reached from this machine: no model has answered since the kernel started,
    and there will be no other try."""
    if call.runtime.has_answered or not call.is_last:
        return False
    if not isinstance(error, ModelError) or error.kind not in _UNREACHABLE:
        return False
    return call.retry is None or not call.retry.should_retry(error, call.attempts)


_UNREACHABLE: Final = ("connection", "auth")


async def _stream_to(fold: Fold, events: AsyncIterator[StreamEvent], sink: Sink, keys: KnownKeys) -> None:
    """Feed the fold, and pass text and thinking to the reader with known keys masked; to one that wants them, also the
    tool calls as they are written."""
    sink.begin()
    text, thinking = StreamKeyFilter(keys), StreamKeyFilter(keys)
    drafts = DraftWriter(sink, keys) if sink.wants_drafts else None
    async for event in events:
        fold.feed(event)
        kind = type(event)
        if kind is TextDelta:
            piece: str = event.text  # type: ignore[union-attr]  # told apart by type
            sink.text(text.feed(piece) if keys else piece)
            if sink.full:
                await sink.room()
        elif kind is ThinkingDelta:
            piece = event.text  # type: ignore[union-attr]  # told apart by type
            sink.thinking(thinking.feed(piece) if keys else piece)
        elif drafts is not None:
            drafts.feed(event)
            if sink.full:
                await sink.room()
    if keys:
        sink.thinking(thinking.flush())
        sink.text(text.flush())


def _settle(sink: Sink, completion: Completion, *, is_journaled: bool) -> Completion:
    """Return the whole answer; a journal keeps the lengths of its pieces, so that a replay shows the same pieces."""
    lengths = sink.settle()
    return msgspec.structs.replace(completion, pieces=lengths) if is_journaled else completion


async def _close(source: Any) -> None:
    """Close a stream that was left in the middle, so that its connection is free now and not when it is collected."""
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


def _settle_cost(call: ModelCall, completion: Completion) -> Usage:
    """Return what the call has cost with all its tries, and settle the caller's scopes with it."""
    counted = completion.usage
    if call.estimated:
        call.learn(counted)
    price = call.price or call.find_price()
    call.micro_usd = price.cost(counted) if price is not None else None
    spent = Usage.from_call(call.micro_usd or 0, counted.total_input, counted.output_tokens)
    if call.lost.packed:
        spent += call.lost
    if call.reservations or call.extra:
        call.settle(spent)
    return spent


async def _in_time(events: AsyncIterator[StreamEvent], timeouts: Timeouts, name: str) -> AsyncIterator[StreamEvent]:
    """Pass the events on, with a time-out until the first, between two, and over all. The time that the reader takes
    for a piece does not count."""
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
            message = (
                f"{name} took longer than {timeouts.total_s:g} s"
                if whole
                else f"{limit_s:g} s passed before {name} {what}"
            )
            raise fault("timeout", message, provider=name) from None
        if left_s is not None:
            left_s -= loop.time() - began_s
        limit_s, what = timeouts.idle_s, "sent the next piece of its answer"
        yield event


# ---------------------------------------------------------------- key filter
# Removes API keys that this process knows from what a model says.


class StreamKeyFilter:
    """A filter for text in pieces."""

    __slots__ = ("_held", "_keys")

    def __init__(self, keys: KnownKeys) -> None:
        self._keys = keys
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text that can be passed on by now."""
        text = self._keys.mask_whole(self._held + piece)
        held = self._keys.length_held(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """Return the text held back so far: no more comes, so it is not the beginning of a key."""
        rest, self._held = self._held, ""
        return rest


def redact_keys(completion: Completion, keys: KnownKeys) -> Completion:
    """Return the answer with known keys masked; the same object where there is none in it."""
    message = completion.message
    if not keys.holds(message.content) and not any(
        keys.holds(call.arguments) or keys.holds(call.problem) for call in message.tool_calls
    ):
        return completion
    content = _without(message.content, keys)
    calls = tuple(_call(call, keys) for call in message.tool_calls)
    clean = msgspec.structs.replace(message, content=content, tool_calls=calls)
    return msgspec.structs.replace(completion, message=clean)


def _call(call: ToolCall, keys: KnownKeys) -> ToolCall:
    if keys.holds(call.problem):
        return msgspec.structs.replace(call, problem=_without(call.problem, keys))
    if not keys.holds(call.arguments):
        return call
    return msgspec.structs.replace(call, arguments=_without(call.arguments, keys), masked=True)


def _without(value: Any, keys: KnownKeys) -> Any:
    if isinstance(value, str):
        return keys.mask_whole(value)
    if isinstance(value, dict):
        return {_without(key, keys): _without(item, keys) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without(item, keys) for item in value)
    return value


# ---------------------------------------------------------------- call drafts
# CallDraft: a piece of a tool call while the model writes it, for a reader that asks for it (`Sink.wants_drafts`).


class CallDraft(AgentEvent, frozen=True):
    """`delta` is more of the arguments as JSON. Without an id: all drafts so far are void, the answer begins anew."""

    type: ClassVar[str] = "tool_draft"

    id: str
    name: str = ""
    delta: str = ""


class DraftWriter:
    """Puts the calls of one try into a sink, with known keys masked."""

    def __init__(self, sink: Sink, keys: KnownKeys) -> None:
        self._sink = sink
        self._keys = keys
        self._calls: dict[int, tuple[str, str, StreamKeyFilter]] = {}  # by place: id, name
        if sink.has_drafts:
            sink.put(CallDraft(""))
        sink.has_drafts = False

    def feed(self, event: StreamEvent) -> None:
        if isinstance(event, ToolStart) and event.id:
            self._calls[event.index] = (event.id, event.name, StreamKeyFilter(self._keys))
            self._put(event.id, event.name, "")
        elif isinstance(event, ToolDelta) and event.index in self._calls:
            call_id, name, key_filter = self._calls[event.index]
            self._put(call_id, name, key_filter.feed(event.text))
        elif isinstance(event, ToolEnd) and event.index in self._calls:
            call_id, name, key_filter = self._calls.pop(event.index)
            self._put(call_id, name, key_filter.flush())

    def _put(self, call_id: str, name: str, delta: str) -> None:
        self._sink.has_drafts = True
        self._sink.put(CallDraft(call_id, name, delta))
