"""Asking the model in a turn: the context window is fitted, then the agent's models are tried in order.

A model that is down or has no capacity is followed by the agent's next fallback. A request that a model finds too long
is sent once more with a smaller window.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lyra.agents.session.model_call import ModelCall
from lyra.agents.session.spans import new_span, turn_span
from lyra.agents.turn.context_window import CHECK_TOKENS, fit
from lyra.agents.turn.forked import models_here, system_here
from lyra.agents.turn.model_effect import expected, model_effect
from lyra.core.effect import canonical_hash
from lyra.core.policies.retry import RETRYABLE, error_class
from lyra.core.trace_context import OpenSpan, TraceSpan
from lyra.errors import BudgetExceeded, ConfigError, LyraError, ModelError
from lyra.kernel.process.call_keys import next_key
from lyra.models.request import Request

if TYPE_CHECKING:
    from lyra.agents.session.session import AgentSession
    from lyra.agents.turn.turn import Turn
    from lyra.models.provider import LLMProvider
    from lyra.models.stream import Completion


async def ask_model(turn: Turn) -> Completion:
    """The model's answer to as much of the conversation as the agent's context policy lets through."""
    session = turn.session
    if turn.agent.context is not None or session.ledger.counted > CHECK_TOKENS:
        await fit(turn)
    try:
        completion = await _ask_models(turn)
    except ModelError as error:
        if error.kind != "context_overflow" or not await fit(turn, overflow=True):
            raise
        completion = await _ask_models(turn)
    session.ledger.heard(completion, len(session.messages))
    return completion


async def _ask_models(turn: Turn) -> Completion:
    """The answer of the agent's model or, where that fails, of its next fallback."""
    runtime, session, process = turn.runtime, turn.session, turn.process
    models, kernel = models_here(turn), runtime.kernel
    first = await resolve_model(turn, models[0])
    call = _model_call(turn, first[1])
    pending = turn.pending
    early_call = call.early_call = pending.early_call if pending is not None else None
    try:
        for index, model in enumerate(models):
            call.aim(await resolve_model(turn, model) if index else first)
            call.is_last = index + 1 == len(models)
            try:
                if early_call is not None and not early_call.is_over:
                    await early_call.wait_for_room(
                        (process.budget, *call.scopes), lambda: expected(process.budget, call)
                    )
                    early_call.note_estimate(runtime.models.tokens, call.model)
                effect = model_effect(session, model, call)
                completion: Completion
                if kernel.agents_heard and not turn.ctx.replaying and kernel.listeners.hears("model.called"):
                    call.span_id = new_span(kernel)
                    place = turn_span(kernel, session)
                    with OpenSpan(TraceSpan(place.trace_id, call.span_id, place.sampled)):
                        completion = await kernel.door.perform(process, next_key(process), effect, (call,), {})
                else:
                    completion = await kernel.door.perform(process, next_key(process), effect, (call,), {})
            except LyraError as error:
                runtime.record(process, session, call, error=error)
                if call.is_last or process.out_of_time or not _falls_back(error):
                    if early_call is not None:
                        early_call.has_failed = True  # calls behind it must not take the room that it did not get
                    raise
            except asyncio.CancelledError as error:
                if kernel.stopping:  # the journal is closed: what the call has cost can only be told
                    runtime.tell(process, session, call, error=error)
                else:
                    runtime.record(process, session, call, error=error)
                raise
            else:
                runtime.record(process, session, call, completion=completion)
                if call.sink is not None:
                    if not call.attempts:  # it came from the journal: no try has streamed it
                        call.sink.begin()
                        for piece in completion.cut():
                            call.sink.text(piece)
                        call.sink.settle()
                    call.sink.put(call.usage_event(completion))
                return completion
    finally:
        call.close()
    raise AssertionError("the last model answers or raises")


def _model_call(turn: Turn, model: str) -> ModelCall:
    """The next question of a turn, to the model that its provider calls `model`."""
    agent, session = turn.agent, turn.session
    output = agent.output
    request = Request(
        model=model,
        messages=session.sent(),
        system=session.prompt(system_here(turn)),
        tools=session.tools.offered(session.messages),
        max_tokens=agent.max_tokens,
        temperature=agent.temperature,
        top_p=agent.top_p,
        output_schema=output.schema if output is not None else None,
        output_name=output.name if output is not None else "answer",
        thinking_tokens=agent.thinking_tokens,
        **agent.sampling,
    )
    return ModelCall(
        turn.runtime,
        request,
        request_digest(session, request) if session.durable else b"",
        session.conversation,
        scopes=turn.scopes,
        sink=turn.sink,
        timeouts=agent.timeouts,
        counts_tokens=agent.counts_tokens,
        tokens_least=agent.min_tokens,
        pid=turn.ctx.pid,
    )


async def resolve_model(turn: Turn, model: str | LLMProvider) -> tuple[LLMProvider, str, str]:
    """(provider, its name for the model, Lyra's name for it) of one of the agent's models."""
    try:
        budgets = (turn.process.budget, *turn.scopes)
        return turn.runtime.models.load(model, priced=any(budget.limits_money for budget in budgets))
    except ConfigError as error:
        await turn.runtime.lacks(turn.process, error)
        raise


def request_digest(session: AgentSession, request: Request) -> bytes:
    """What the journal knows a question by: the transcript and the settings it is asked with."""
    system, tools = request.system, [tool.name for tool in request.tools]
    known = session.cache.settings  # the other settings are the agent's, which never change
    if known is None or known[1] != tools or known[0] != system:
        settings = (system, tools, request.max_tokens, request.temperature)
        known = session.cache.settings = (system, tools, canonical_hash("settings", settings, {}))
    return session.digest + known[2]


def _falls_back(error: LyraError) -> bool:
    """Whether another model might answer: this one is down or has no capacity. A bad request is bad for every model."""
    return error_class(error) in RETRYABLE and not isinstance(error, BudgetExceeded)
