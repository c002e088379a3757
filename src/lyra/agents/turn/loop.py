"""The loop: model and tools in turn until there is an answer. A program like any other, over effects.

    receive a message → ask the model → run the tools it called, together → tell it their results → ask again → answer

Bounded by `max_iterations` and the Budget. A tool that fails is told to the model, which may do better. What ends a
turn without an answer has a status of its own (`STATUSES`) and is an AgentFailed for the caller, never a text.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.declaration.content import message_of
from lyra.agents.session.early_call import ahead
from lyra.agents.session.events import Done, Failed, Restart, Text, UsageTold
from lyra.agents.session.execution import AgentState
from lyra.agents.session.records import turn_record
from lyra.agents.session.replies import MarkedReply, Pending, Reply
from lyra.agents.session.session import Session
from lyra.agents.session.shared import Runtime, runtime_of, scopes
from lyra.agents.turn.context_window import CHECK_TOKENS, fit
from lyra.agents.turn.memory import recalled
from lyra.agents.turn.model_call import Ask, expected, model_effect
from lyra.agents.turn.tool_calls import run_tools
from lyra.core.effect import canonical_hash
from lyra.core.message import Message
from lyra.core.policies.retry import RETRYABLE, error_class
from lyra.errors import AgentFailed, BudgetExceeded, ConfigError, Divergence, LyraError, ModelError
from lyra.kernel.journal.error_rows import error_from_row, error_to_row
from lyra.kernel.process.call_keys import next_key
from lyra.kernel.process.process import GIVEN_UP, Process
from lyra.kernel.programs.context import Context, read
from lyra.kernel.programs.milestone import replayed_milestone, write_milestone
from lyra.models.request import Request
from lyra.models.stream import Completion, cut

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import Agent
    from lyra.models.provider import LLMProvider

__all__ = ["STATUSES", "once", "serve"]

STATUSES: Final[dict[str, str]] = {
    "success": "an answer",
    "max_iterations": "the model went on calling tools until its turns were used up",
    "repetition": "the model asked for the same tool calls again and again",
    "empty": "the model said nothing, several times",
    "max_tokens": "it was cut off at its longest before there was anything to use",
    "content_filter": "the provider withheld the answer",
    "output_invalid": "the answer did not fit the wanted type, also after being asked again",
}
_HINTS: Final[dict[str, str]] = {
    "max_iterations": "raise max_iterations, or give it a task that needs fewer tools",
    "repetition": "look at what that tool answers: the model does not get on with it",
    "empty": "look at the system prompt, or try another model",
    "max_tokens": "raise max_tokens, lower thinking_tokens, or leave more of the budget for the answer",
    "content_filter": "say it differently, or try another model",
    "output_invalid": "make the type simpler, say in the system prompt what is wanted, or raise output_retries",
}
_EDITED: Final = (
    "the agent's settings changed in the middle of an answer; let it finish with the old ones, or take another pid"
)
_REPEATS_MAX: Final = 3  # the same calls in a row
_EMPTY_MAX: Final = 3  # answers without text or calls in a row
_CHECKPOINT_EVERY: Final = 64  # messages: what a restart has to replay at most


async def serve(ctx: Context, agent: Agent) -> None:
    """The program of an agent process: one conversation, message by message."""
    process = ctx.own_process
    kernel = process.kernel
    runtime = runtime_of(kernel)
    session = runtime.begin(process, agent, ctx.restored)
    if ctx.restored is not None:
        _tell_again(runtime, session, ctx.restored)
    kept = len(session.messages)
    own = (session.trace_id, session.parent_span)
    while True:
        message = await ctx.receive()
        request_id, content = _opened(message)
        if content is None:
            continue
        begin, mark = process.keys, len(session.messages)
        if process.replay is not None:
            over = await replayed_milestone(process, "turn")
            if over is not None:  # whatever the agent is like now
                session.replay(over)
                _tell_again(runtime, session, over)
                continue
        pending = runtime.pending.get(request_id)
        if pending is not None:
            pending.running = process.pid
            session.asked_in(pending.span, own)
        failure = None
        if request_id and _is_given_up(process, session, pending):
            runtime.take(request_id)
        else:
            failure = await _answer(ctx, runtime, session, request_id, content)
        if not session.durable:
            continue
        told: dict[str, Any] = {"request": request_id} if request_id else {}
        if failure is not None:
            told["error"] = error_to_row(failure)
        elif pending is not None and pending.sink is not None:
            said = sum(len(message.text) for message in session.messages[mark:] if message.role == "assistant")
            if sum(pending.sink.lengths) == said:
                told["pieces"] = pending.sink.lengths
        if len(session.messages) - kept < _CHECKPOINT_EVERY:
            await write_milestone(process, "turn", begin, {**session.since(mark), **told})
        else:
            kept = len(session.messages)
            await ctx.checkpoint({**session.to_data(), **told})


def _tell_again(runtime: Runtime, session: Session, over: dict[str, Any]) -> None:
    """A turn came to its end in an earlier life: whoever asks for it again is told what came of it then."""
    pending = runtime.take(over.get("request", ""))
    if pending is None:
        return
    failed = over.get("error")
    if failed is not None:
        _tell(pending, None, error_from_row(failed), session)
        return
    text = session.messages[-1].text if session.messages else ""
    if pending.sink is not None:
        lengths = over.get("pieces") or [len(text)]
        said = "".join(message.text for message in session.messages if message.role == "assistant")
        for piece in cut(said[len(said) - sum(lengths) :], lengths):
            pending.sink.put(Text(piece))
    output = session.agent.output
    _tell(pending, text if output is None else output.read(text), None, session)


def _is_given_up(process: Process, session: Session, pending: Pending | None) -> bool:
    """Whether the caller left before its message was looked at; a replay finds the same."""
    if not session.durable:
        return pending is not None and pending.abandoned
    return bool(read(process, "given_up", lambda: pending is not None and pending.abandoned))


def _opened(message: Any) -> tuple[str, Any]:
    """(id of the request, content) of a message. A plain one has no caller; a signal of the kernel's is no message."""
    if isinstance(message, dict) and "lyra.ask" in message:
        return message["lyra.ask"], message["content"]
    if isinstance(message, msgspec.Struct):
        return "", None
    return "", message


async def _answer(
    ctx: Context, runtime: Runtime, session: Session, request_id: str, content: Any
) -> BaseException | None:
    """One turn, and its end told to whoever asked; gives why there is no answer."""
    process = ctx.own_process
    mark, digest = len(session.messages), session.digest
    asked = runtime.pending.get(request_id)
    call = asked.ahead if asked is not None else None
    session.turn = None if asked is None else (mark, asked)
    budget = process.budget
    if call is not None:
        call.enter()
        if not runtime.is_own:  # what others spend from too
            process.budget = call.apart(budget)
    session.begin(runtime.kernel.clock.now(), replayed=process.replay is not None)
    failure: BaseException | None = None
    value: Any = None
    try:
        session.tools.begin(process)
        value = await _turn(ctx, runtime, session, asked, content)
    except asyncio.CancelledError as cancelled:
        failure = cancelled
        if cancelled.args != (GIVEN_UP,) or process.kill_reason is not None:  # given up, and told to end as well
            raise
        process.uncancel()
        session.cut_back(mark, digest)
    except Divergence as error:
        failure = error
        error.hint = _EDITED
        raise
    except LyraError as error:
        failure = error
        session.metrics.errors += 1
        session.cut_back(mark, digest)
        if process.out_of_time:
            raise
    except BaseException as error:
        failure = error
        raise
    finally:
        process.budget = budget
        session.turn = None
        if call is not None:
            call.leave()
        _ended(runtime, process, session, value, failure)
        pending = runtime.take(request_id)
        if pending is not None:
            _tell(pending, value, failure, session)
    return failure


def _ended(runtime: Runtime, process: Process, session: Session, value: Any, failure: BaseException | None) -> None:
    """The run is over: its record is closed, and shown to whoever listens (not of a run that was only replayed)."""
    execution = session.execution
    assert execution is not None
    kernel = runtime.kernel
    execution.end(kernel.clock.now(), value, failure)
    if not kernel.agents_heard or kernel.stopping or not kernel.listeners.hears("agent.answered"):
        return
    if session.turn_span or not session.replayed:
        kernel.publish(process.pid, "agent.answered", turn_record(kernel, session, execution))


async def once(ctx: Context, agent: Agent, content: Any) -> str:
    """The program of an agent that is asked one thing: its result is the text of the answer, its error why not."""
    process = ctx.own_process
    runtime = runtime_of(process.kernel)
    session = runtime.begin(process, agent, None)
    session.begin(runtime.kernel.clock.now(), replayed=process.replay is not None)
    call = ahead.get()
    inside = scopes.get() if call is None else call.around(scopes.get())
    pending = Pending(runtime, "", process.pid, inside, None)  # nobody waits for it; it brings the scopes
    pending.ahead = call
    failure: BaseException | None = None
    try:
        session.tools.begin(process)
        await _turn(ctx, runtime, session, pending, content)
    except BaseException as error:
        failure = error
        raise
    finally:
        answer = session.messages[-1].text if failure is None else ""
        _ended(runtime, process, session, answer, failure)
        asker = runtime.sessions.get(process.parent.pid) if process.parent is not None else None
        if asker is not None:
            asker.metrics.add_helper(session.metrics.totals)
    return answer


def _tell(pending: Pending, value: Any, failure: BaseException | None, session: Session) -> None:
    sink = pending.sink
    if failure is None:
        if sink is not None:
            sink.put(Done("success", session.messages[-1].text))
        pending.answer(value)
        return
    if isinstance(failure, asyncio.CancelledError):
        failure = AgentFailed("the agent was stopped before it answered", status="cancelled")
    elif not isinstance(failure, LyraError):
        failure = AgentFailed(f"the agent failed: {type(failure).__name__}: {failure}", status="crashed")
    if sink is not None and isinstance(failure, LyraError):
        sink.put(Failed(failure.code, failure.message))
        sink.put(Done(str(failure.fields.get("status") or failure.code)))
    pending.fail(failure)


# ---------------------------------------------------------------------- a turn


async def _turn(ctx: Context, runtime: Runtime, session: Session, pending: Pending | None, content: Any) -> Any:
    agent = session.agent
    metrics = session.metrics
    before = metrics.totals
    metrics.turns += 1
    metrics.last_active_at = runtime.kernel.clock.now()
    session.append(message_of(content))
    system = "" if agent.system == "" and agent.memory is None else await _system(ctx.own_process, runtime, session)
    execution = session.execution
    assert execution is not None
    execution.move(AgentState.THINKING)
    repeated = empty = misfits = 0
    last_calls: Any = None
    for at in range(agent.max_iterations):
        if at:
            session.tools.renew(ctx.own_process)
        completion = await _ask(ctx, runtime, session, pending, system)
        session.append(completion.message)
        if completion.stop_reason == "content_filter":
            raise _failed("content_filter", agent)
        calls = completion.tool_calls
        if calls:
            asked = [(call.name, call.arguments) for call in calls]
            repeated = repeated + 1 if asked == last_calls else 1
            last_calls = asked
            if repeated >= _REPEATS_MAX:
                raise _failed("repetition", agent, tool=calls[0].name)
            execution.move(AgentState.EXECUTING_TOOLS)
            session.append(await run_tools(ctx, runtime, session, calls, pending))
            execution.move(AgentState.THINKING)
            continue
        text = completion.message.text
        if not text or text.isspace():
            if completion.stop_reason == "max_tokens":  # the next answer would end at the same place
                raise _failed("max_tokens", agent, output_tokens=completion.usage.output_tokens)
            empty += 1
            if empty >= _EMPTY_MAX:
                raise _failed("empty", agent)
            session.append(Message("user", "Please answer."))
            continue
        if agent.output is None:
            return _reply(text, completion.stop_reason, session, before)
        try:
            return agent.output.read(text)
        except ValueError as misfit:
            if completion.stop_reason == "max_tokens":
                raise _failed("max_tokens", agent, output_tokens=completion.usage.output_tokens) from None
            misfits += 1
            if misfits > agent.output_retries:
                raise _failed("output_invalid", agent, detail=str(misfit)) from None
            if pending is not None and pending.sink is not None:
                pending.sink.put(Restart(text))
            session.append(Message("user", f"{misfit}. Answer again with JSON that fits the schema, and nothing else."))
    raise _failed("max_iterations", agent, iterations=agent.max_iterations)


def _failed(status: str, agent: Agent, **fields: Any) -> AgentFailed:
    detail = f" ({fields['detail']})" if "detail" in fields else ""
    message = f"agent {agent.name} gave no answer: {STATUSES[status]}{detail}"
    return AgentFailed(message, hint=_HINTS[status], status=status, **fields)


def _reply(text: str, stop_reason: str, session: Session, before: tuple[int, int, int, int]) -> Reply:
    """The answer with what it took, the helpers' part included."""
    now = session.metrics.totals
    reply = (MarkedReply if session.tainted else Reply).made(
        text,
        cost_usd=None if now[3] > before[3] else (now[2] - before[2]) / 1_000_000,
        input_tokens=now[0] - before[0],
        output_tokens=now[1] - before[1],
    )
    if stop_reason == "max_tokens":
        reply.status = "max_tokens"
    return reply


async def _system(process: Process, runtime: Runtime, session: Session) -> str:
    """The system prompt of this turn: the agent's, and what its memory has to say to the message."""
    agent = session.agent
    system = agent.system if isinstance(agent.system, str) else await _made(process, runtime, session)
    if agent.memory is not None:
        remembered = recalled(runtime, process, agent.memory, session.messages[-1].text)
        system = "\n\n".join(part for part in (system, remembered) if part)
    return runtime.clean(system) if system else system


async def _made(process: Process, runtime: Runtime, session: Session) -> str:
    """What the agent's function says; on a replay, what it said then."""
    text = ""
    if not process.replay or process.keys not in process.replay:
        assert callable(session.agent.system)
        text = session.agent.system(session)
        if asyncio.iscoroutine(text):
            text = await text
        if text is None:
            text = ""
        elif not isinstance(text, str):
            said = f"the system function of agent {session.agent.name} gave {type(text).__name__}, not text"
            raise ConfigError(said, key="system")
    return str(read(process, "system", lambda: runtime.clean(str(text))))


# ---------------------------------------------------------------------- asking


async def _ask(ctx: Context, runtime: Runtime, session: Session, pending: Pending | None, system: str) -> Completion:
    """The model's answer to as much of the conversation as the agent's context lets through."""
    if session.agent.context is not None or session.ledger.counted > CHECK_TOKENS:
        await fit(ctx, runtime, session, pending)
    try:
        completion = await _ask_models(ctx, runtime, session, pending, system)
    except ModelError as error:
        if error.kind != "context_overflow" or not await fit(ctx, runtime, session, pending, overflow=True):
            raise
        completion = await _ask_models(ctx, runtime, session, pending, system)
    session.ledger.heard(completion, len(session.messages))
    return completion


async def _ask_models(
    ctx: Context, runtime: Runtime, session: Session, pending: Pending | None, system: str
) -> Completion:
    """The answer, from the agent's model or, where that one cannot, from the next it may fall back to."""
    agent = session.agent
    output = agent.output
    found = await _found(ctx, runtime, agent.model)
    request = Request(
        model=found[1],
        messages=session.sent(),
        system=session.prompt(system),
        tools=session.tools.offered(session.messages),
        max_tokens=agent.max_tokens,
        temperature=agent.temperature,
        top_p=agent.top_p,
        output_schema=output.schema if output is not None else None,
        output_name=output.name if output is not None else "answer",
        thinking_tokens=agent.thinking_tokens,
    )
    ask = Ask(
        runtime,
        request,
        _identity(session, request) if session.durable else b"",
        session.conversation,
        scopes=pending.scopes if pending is not None else (),
        sink=pending.sink if pending is not None else None,
        timeouts=agent.timeouts,
        counts_tokens=agent.rate_limit is not None and agent.rate_limit.tokens_per_minute is not None,
        pid=ctx.pid,
    )
    models, process, kernel = agent.models, ctx.own_process, runtime.kernel
    call = ask.call = pending.ahead if pending is not None else None
    try:
        for at, model in enumerate(models):
            ask.aim(await _found(ctx, runtime, model) if at else found)
            ask.is_last = at + 1 == len(models)
            try:
                if call is not None and not call.is_over:
                    await call.room((process.budget, *ask.scopes), lambda: expected(process.budget, ask))
                    call.quotes(runtime.tokens, ask.model)
                effect = model_effect(agent, model, ask)
                completion: Completion = await kernel.door.perform(process, next_key(process), effect, (ask,), {})
            except LyraError as error:
                runtime.record(process, session, ask, error=error)
                if at + 1 == len(models) or process.out_of_time or not _falls_over(error):
                    if call is not None:
                        call.has_failed = True  # so that none behind it takes the room it has not got
                    raise
            except asyncio.CancelledError as cut:
                if not kernel.stopping:
                    runtime.record(process, session, ask, error=cut)
                raise
            else:
                runtime.record(process, session, ask, completion=completion)
                if ask.sink is not None:
                    if not ask.attempts:  # it came from the journal, where nobody has shown it
                        ask.sink.begin()
                        for piece in completion.cut():
                            ask.sink.text(piece)
                        ask.sink.settle()
                    ask.sink.put(_usage_event(completion, ask))
                return completion
    finally:
        ask.close()
    raise AssertionError("the last model answers or raises")


async def _found(ctx: Context, runtime: Runtime, model: str | LLMProvider) -> tuple[LLMProvider, str, str]:
    try:
        return runtime.load(model)
    except ConfigError as error:
        await runtime.lacks(ctx.own_process, error)
        raise


def _identity(session: Session, request: Request) -> bytes:
    system, tools = request.system, [tool.name for tool in request.tools]
    known = session.agent.asks_with  # the rest is the agent's, and never changes
    if known is None or known[1] != tools or known[0] != system:
        settings = (system, tools, request.max_tokens, request.temperature)
        known = session.agent.asks_with = (system, tools, canonical_hash("settings", settings, {}))
    return session.digest + known[2]


def _falls_over(error: LyraError) -> bool:
    """Whether another model might do: this one is down or has no room. A request that is wrong is wrong everywhere."""
    return error_class(error) in RETRYABLE and not isinstance(error, BudgetExceeded)


def _usage_event(completion: Completion, ask: Ask) -> UsageTold:
    usage = ask.all_tokens(completion)
    cost = None if ask.all_micro_usd is None else ask.all_micro_usd / 1_000_000
    return UsageTold(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, cost)
