"""The loop of an agent: model and tools in turn until there is an answer. A program like any other, over effects.

    receive a message → ask the model → run the tools it called, together → tell it their results → ask again → answer

Bounded by `max_iterations` and the Budget. The model is told when a tool fails, and may do better. A turn that ends
without an answer has its own status (`STATUSES`) and is an AgentFailed for the caller, never a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.declaration.output import message_of
from lyra.agents.session.early_call import current_early_call
from lyra.agents.session.events import AnswerDone, AnswerFailed, Restart, Text
from lyra.agents.session.model_call import AgentExecution, AgentState
from lyra.agents.session.open_questions import scopes
from lyra.agents.session.records import turn_record
from lyra.agents.session.replies import GO_ON, MarkedReply, Pending, Reply, Sink, last_answer
from lyra.agents.session.session import CHECKPOINT_EVERY, COMPACTED, REVISE, TURN, AgentSession
from lyra.agents.session.shared import AgentRuntime, runtime_of
from lyra.agents.session.toolset import client_tools
from lyra.agents.turn.memory import read_remembered
from lyra.agents.turn.model_call import CHECK_TOKENS, ask_model, compact, fit
from lyra.agents.turn.model_effect import cut_by_budget
from lyra.agents.turn.tool_calls import run_tools
from lyra.agents.turn.turn import (
    BAD_CALL,
    NOTHING_CAME,
    RepeatGuard,
    Turn,
    add_notices,
    add_to_result,
)
from lyra.core.message import Message
from lyra.core.trace_context import parse_traceparent
from lyra.errors import AgentFailed, BudgetExceeded, ConfigError, Divergence, LyraError, ModelError
from lyra.kernel.journal.rows import error_from_row, error_to_row, text_of
from lyra.kernel.process.process import GIVEN_UP
from lyra.kernel.process.replay import replay_milestone, skip_replay, write_milestone
from lyra.kernel.programs.context import Context
from lyra.kernel.programs.journaled_call import read
from lyra.models.stream import BROKEN_CALL, CUT_BY_BUDGET, CUT_BY_PROVIDER, Completion, cut

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration

__all__ = ["COMPACT", "ORDERS", "REVISE", "STATUSES", "TurnEnded", "once", "serve"]

STATUSES: Final[dict[str, str]] = {
    "success": "an answer",
    "max_iterations": "the model went on calling tools until its turns were used up",
    "repetition": "the model made the same tool calls with the same results again and again, also after it was told",
    "repeated_text": "the model said the same again and again beside its tool calls, also after it was told",
    "empty": "the model said nothing, several times",
    "max_tokens": "it was cut off at its longest before there was anything to use",
    "content_filter": "the provider withheld the answer",
    "output_invalid": "the answer did not fit the wanted type, also after being asked again",
    "message_refused": "a hook refused the message",
    "ended_by_hook": "a hook ended the turn",
}
_HINTS: Final[dict[str, str]] = {
    "max_iterations": "raise max_iterations, or give it a task that needs fewer tools",
    "repetition": "look at what that tool answers: the model does not get on with it",
    "repeated_text": "look at what its tools answer, or try another model",
    "empty": "look at the system prompt, or try another model",
    "max_tokens": "raise max_tokens, lower thinking_tokens, or leave more of the budget for the answer",
    "content_filter": "say it differently, or try another model",
    "output_invalid": "make the type simpler, say in the system prompt what is wanted, or raise output_retries",
    "message_refused": "do as the hook says, or change it",
    "ended_by_hook": "do as the hook says, or change it",
}
# Orders about the conversation itself, which are carried out in turn with its messages.
COMPACT: Final = "lyra.compact"
ORDERS: Final = {REVISE: "keep some messages and add others", COMPACT: "move the window over the conversation"}
_EDITED: Final = (
    "the agent's settings changed in the middle of an answer; let it finish with the old ones, or take another pid"
)
_CUT: Final = (CUT_BY_PROVIDER, CUT_BY_BUDGET)  # stop reasons that an answer says as its status
_WITHHELD: Final = ("content_filter", CUT_BY_BUDGET)  # stop reasons of an answer that may not be used
_LIMITS: Final = frozenset({"only", "tools"})  # keys of a message that few have
_PLEASE: Final = "Please answer."  # to a model that said nothing
_EMPTY_MAX: Final = 3  # answers without text or calls in a row

TurnEnded = Callable[[Turn, str, int, BaseException | None], None]


# ---------------------------------------------------------------------- programs


async def serve(ctx: Context, agent: AgentDeclaration, turn_ended: TurnEnded | None = None) -> None:
    """Run the program of an agent process: one conversation, message by message.

    `turn_ended` is called with each turn that is over, the id of its request, the number of messages before it, and
    why there is no answer (None where there is one), right before the journal has the turn's end. After a crash in
    between it is called again with the same turn. What it does to the conversation stays.
    """
    process = ctx.own_process
    runtime = runtime_of(process.core.face)
    began_at = runtime.kernel.clock.now()
    session = runtime.begin(process, agent, process.restored)
    failure: BaseException | None = None
    try:
        await _serve(ctx, runtime, session, turn_ended)
    except BaseException as error:
        failure = error
        raise
    finally:
        if process.core.agents_heard:
            runtime.end(process, session, began_at, failure)


async def _serve(ctx: Context, runtime: AgentRuntime, session: AgentSession, turn_ended: TurnEnded | None) -> None:
    process = ctx.own_process
    if process.restored is not None:
        _deliver_again(runtime, session, process.restored)
    checkpointed = len(session.messages)
    own_span = session.place
    while True:
        message = await ctx.receive()
        request_id, content = parse_message(message)
        if content is None:
            continue
        if isinstance(content, dict) and content.keys() & ORDERS.keys():
            checkpointed = min(checkpointed, await _carry_out(ctx, runtime, session, request_id, content))
            continue
        begin, mark = process.keys, len(session.messages)
        if process.replay is not None:
            finished = await replay_milestone(process, TURN)
            if finished is not None:  # the turn is over, also where the agent's settings have changed since
                session.replay(finished)
                _deliver_again(runtime, session, finished)
                continue
        pending = runtime.questions.pending.get(request_id)
        is_withdrawn = pending is None and runtime.kernel.withdrawals.holds(process, request_id)
        if is_withdrawn and process.replay is not None:
            skip_replay(process)
        if pending is not None:
            pending.running = process.pid
            session.put_next_turn_under(pending.span, own_span)
        elif isinstance(message, dict) and "trace" in message:  # its caller asked before a restart
            session.put_next_turn_under(parse_traceparent(str(message["trace"])), own_span)
        turn = Turn(ctx, runtime, session, pending)
        failure: BaseException | None = None
        # Whether the caller left before the agent came to its message; the journal keeps that for a replay.
        is_left = is_withdrawn or (pending is not None and pending.abandoned)
        if request_id and (read(process, "given_up", is_left) if session.durable else is_left):
            runtime.questions.take(request_id)
            if turn_ended is not None:
                turn.status = "withdrawn"
                turn_ended(turn, request_id, mark, asyncio.CancelledError(GIVEN_UP))
        else:
            failure = await _answer(turn, request_id, content, message)
            if turn_ended is not None:
                turn_ended(turn, request_id, mark, failure)
        if not session.durable:
            continue
        outcome = _outcome(turn, request_id, mark, failure)
        if len(session.messages) - checkpointed < CHECKPOINT_EVERY:
            await write_milestone(process, TURN, begin, {**session.since(mark), **outcome})
        else:
            checkpointed = len(session.messages)
            await ctx.checkpoint({**session.to_data(), **outcome, **_last_turn(session, mark)})
        runtime.kernel.withdrawals.forget_withdrawn(process, request_id)


async def _carry_out(
    ctx: Context, runtime: AgentRuntime, session: AgentSession, request_id: str, order: dict[str, Any]
) -> int:
    """Carry out an order about the conversation itself; gives how many of its messages are the same as before."""
    pending, same = runtime.questions.pending.get(request_id), len(session.messages)
    failure: BaseException | None = None
    if pending is not None:
        pending.running = ctx.own_process.pid
    try:
        if REVISE in order:
            same = min(int(order[REVISE]["keep"]), same)
            session.revise(same, [Message.from_data(message) for message in order[REVISE]["add"]])
        else:
            await _compact(Turn(ctx, runtime, session, pending), request_id, str(order[COMPACT]))
    except LyraError as error:
        failure = error
    except asyncio.CancelledError as cancelled:
        if cancelled.args != (GIVEN_UP,) or ctx.own_process.kill_reason is not None:
            raise
        ctx.own_process.uncancel()
        failure = cancelled
    runtime.questions.take(request_id)
    if pending is not None and not isinstance(failure, asyncio.CancelledError):
        if failure is None:
            pending.answer(None)
        else:
            pending.fail(failure)
    runtime.kernel.withdrawals.forget_withdrawn(ctx.own_process, request_id)
    return same


async def _compact(turn: Turn, request_id: str, focus: str) -> None:
    """Move the window; a replay takes the outcome from the journal, also where the agent has another model by then."""
    session, process = turn.session, turn.process
    begin = process.keys
    if process.replay is not None:
        finished = await replay_milestone(process, COMPACTED)
        if finished is not None:
            session.take_window(finished)
            return
        if turn.pending is None and turn.runtime.kernel.withdrawals.holds(process, request_id):
            skip_replay(process)
            return
    try:
        await compact(turn, focus)
    finally:
        if session.durable and not turn.runtime.kernel.stopping:
            await write_milestone(process, COMPACTED, begin, session.window_data())


async def once(
    ctx: Context, agent: AgentDeclaration, content: Any, *, sink: Sink | None = None, history: Iterable[Message] = ()
) -> str:
    """Run the program of an agent that does one task: its result is the text of the answer, its error why there is
    none. The `sink` is told the answer as it comes; `history` is the conversation before the task."""
    process = ctx.own_process
    runtime = runtime_of(process.core.face)
    began_at = runtime.kernel.clock.now()
    session = runtime.begin(process, agent, None)
    if before := list(history):
        session.revise(0, before)
    session.begin(runtime.kernel.clock.now(), replayed=process.replay is not None)
    early_call = current_early_call.get()
    around = scopes.get() if early_call is None else early_call.around(scopes.get())
    # No caller awaits this answer; it carries the caller's budgets.
    pending = Pending(runtime.questions, "", process.pid, around, sink)
    pending.early_call = early_call
    turn = Turn(ctx, runtime, session, pending)
    failure: BaseException | None = None
    try:
        session.tools.begin(process)
        await _run(turn, content)
    except BaseException as error:
        failure = error
        raise
    finally:
        answer = last_answer(session.messages) if failure is None else ""
        process.result_status = turn.status if failure is None and turn.status != "success" else ""
        close_record(turn, answer, failure)
        asker = runtime.sessions.get(process.parent.pid) if process.parent is not None else None
        if asker is not None:
            asker.metrics.add_helper(session.metrics.totals)
        if process.core.agents_heard:
            runtime.end(process, session, began_at, failure)
    return answer


# ---------------------------------------------------------------------- from the message to the caller


def parse_message(message: Any) -> tuple[str, Any]:
    """(id of the request, content) of a message. A plain message has no caller; a signal of the kernel no content."""
    if isinstance(message, dict):
        request_id = message.get("lyra.ask")
        if isinstance(request_id, str) and "content" in message:
            return request_id, message["content"]
    elif isinstance(message, msgspec.Struct):
        return "", None
    return "", message


def limit_of(message: Any) -> tuple[str, ...] | None:
    """Return the rules outside of which no tool may be used for a message; None where it has no limit."""
    rules = message.get("only") if isinstance(message, dict) and "lyra.ask" in message else None
    return None if rules is None else tuple(map(str, rules))


async def _answer(
    turn: Turn,
    request_id: str,
    content: Any,
    message: Any,
) -> BaseException | None:
    """Run a turn and deliver how it ended to the caller; gives why there is no answer, None if there is one. The
    `message` may limit the tools, or bring some along."""
    runtime, session, process, asked = turn.runtime, turn.session, turn.process, turn.pending
    mark, digest, budget = len(session.messages), session.digest if session.durable else b"", process.budget
    early_call = asked.early_call if asked is not None else None
    session.turn = None if asked is None else (mark, asked)
    if early_call is not None:
        early_call.enter()
        if not runtime.is_own:  # others spend from this budget too
            process.budget = early_call.scope_for(budget)
    session.begin(runtime.kernel.clock.now(), replayed=process.replay is not None, request_id=request_id)
    failure: BaseException | None = None
    value: Any = None
    try:
        limited = message if isinstance(message, dict) and not _LIMITS.isdisjoint(message) else None
        session.tools.begin(process, () if limited is None else client_tools(limited))
        value = await _run(turn, content, None if limited is None else limit_of(limited))
    except asyncio.CancelledError as cancelled:
        failure = cancelled
        if cancelled.args != (GIVEN_UP,) or process.kill_reason is not None:  # the process itself is to end
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
        if early_call is not None:
            early_call.leave()
        close_record(turn, value, failure)
        pending = runtime.questions.take(request_id)
        if pending is not None:
            closed = process.core.stopping and isinstance(failure, (asyncio.CancelledError, GeneratorExit))
            reason = runtime.questions.make_closed_error(pending) if closed else failure
            deliver(pending, session, value, reason, status=turn.status)
        if runtime.questions.followers:
            for follower in runtime.questions.take_followers(turn.ctx.pid):
                deliver(follower, session, value, failure, status=turn.status)
    return failure


def close_record(turn: Turn, value: Any, failure: BaseException | None) -> None:
    """Close the record of the run and publish it, unless the run was only replayed."""
    session, kernel = turn.session, turn.runtime.kernel
    execution = session.execution
    assert execution is not None
    execution.end(kernel.clock.now(), value, failure, status=turn.status)
    if "agent.answered" not in kernel.core.agents_heard or kernel.core.stopping:
        return
    if session.turn_span or not session.replayed:
        kernel.publish(turn.process.pid, "agent.answered", turn_record(kernel, session, execution))


def deliver(
    pending: Pending, session: AgentSession, value: Any, failure: BaseException | None, *, status: str = "success"
) -> None:
    """Give the caller the answer, or the error in place of one; `status` says whether the answer was cut."""
    sink = pending.sink
    if failure is None:
        if sink is not None:
            sink.put(AnswerDone(status, last_answer(session.messages)))
        pending.answer(value)
        return
    if isinstance(failure, asyncio.CancelledError):
        failure = AgentFailed("the agent was stopped before it answered", status="cancelled")
    elif not isinstance(failure, LyraError):
        failure = AgentFailed(f"the agent failed: {type(failure).__name__}: {text_of(failure)}", status="crashed")
    if sink is not None and isinstance(failure, LyraError):
        sink.put(AnswerFailed(failure.code, failure.message))
        sink.put(AnswerDone(str(failure.fields.get("status") or failure.code)))
    pending.fail(failure)


def _outcome(turn: Turn, request_id: str, mark: int, failure: BaseException | None) -> dict[str, Any]:
    """Return what the journal's row of a turn says for `_deliver_again`: whose request it was, its error or its
    pieces."""
    outcome: dict[str, Any] = {"request": request_id} if request_id else {}
    execution = turn.session.execution
    if execution is not None and execution.ended_at is not None:
        outcome["ran"] = [execution.started_at, execution.ended_at]
    if failure is None and turn.status != "success":
        outcome["status"] = turn.status
    if failure is not None:
        outcome["error"] = error_to_row(failure)
    elif turn.pending is not None and turn.pending.sink is not None:
        sink = turn.pending.sink
        messages = turn.session.messages[mark:]
        length = sum(len(message.text) for message in messages if message.role == "assistant")
        if sum(sink.lengths) == length:
            outcome["pieces"] = sink.lengths
    return outcome


def _last_turn(session: AgentSession, mark: int) -> dict[str, Any]:
    """Return what a checkpoint says of the last of its turns: its first message, and what was counted before it."""
    execution = session.execution
    return {} if execution is None else {"turn": [mark, execution.before_data()]}


def _deliver_again(runtime: AgentRuntime, session: AgentSession, finished: dict[str, Any]) -> None:
    """Deliver the outcome of a turn that ended before the kernel restarted to a caller that asks for it again."""
    pending = runtime.questions.take(finished.get("request", ""))
    if pending is None:
        return
    error = finished.get("error")
    if error is not None:
        deliver(pending, session, None, error_from_row(error))
        return
    answer = last_answer(session.messages)
    if pending.sink is not None:
        lengths = finished.get("pieces") or [len(answer)]
        text = "".join(message.text for message in session.messages if message.role == "assistant")
        for piece in cut(text[len(text) - sum(lengths) :], lengths):
            pending.sink.put(Text(piece))
    output, status = session.agent.output, finished.get("status", "success")
    value = _reply_again(session, answer, status) if output is None else output.read(answer)
    deliver(pending, session, value, None, status=status)


def _reply_again(session: AgentSession, text: str, status: str) -> Reply:
    """Return the answer of a turn that was restored. Its figures are not known where an earlier version saved the
    session."""
    run = session.execution
    reply = (MarkedReply if session.tainted else Reply)(text)
    reply.cost_usd, reply.input_tokens, reply.output_tokens = (
        (None, 0, 0) if run is None else session.metrics.count_since(run.before)
    )
    reply.status = status
    return reply


# ---------------------------------------------------------------------- a turn


def _run(turn: Turn, content: Any, only: tuple[str, ...] | None = None) -> Coroutine[Any, Any, Any]:
    """Return the answer to one message. Most turns wait for nothing before they ask the model."""
    agent, session = turn.agent, turn.session
    if only is not None:
        session.limit(only)
    execution = session.execution
    assert execution is not None
    session.metrics.turns += 1
    session.metrics.last_active_at = execution.started_at
    message = message_of(content)
    is_hooked = (session.hooks is not None or turn.process.replay is not None) and turn.has_hooks
    if is_hooked or agent.memory is not None or not isinstance(agent.system, str):
        return _run_prepared(turn, message, execution, is_hooked=is_hooked)
    session.messages.append(message)
    if agent.system:
        turn.system = _mask_prompt(turn, agent.system)
    return _iterate(turn, execution) if agent.elsewhere is None else _answer_elsewhere(turn, agent.elsewhere)


async def _run_prepared(turn: Turn, message: Message, execution: AgentExecution, *, is_hooked: bool) -> Any:
    """Return the answer to a message that hooks look at first, or whose system prompt has to be made."""
    if is_hooked:
        message = await _apply_message_hooks(turn, message)
    turn.session.messages.append(message)
    if turn.agent.elsewhere is not None:
        return await _answer_elsewhere(turn, turn.agent.elsewhere)
    turn.system = await system_prompt(turn)
    return await _iterate(turn, execution)


async def _answer_elsewhere(turn: Turn, elsewhere: Callable[[Turn], Awaitable[str]]) -> Any:
    """Return the answer of an agent whose model and tools are on another machine."""
    execution = turn.session.execution
    assert execution is not None
    execution.move(AgentState.THINKING)
    text = await elsewhere(turn)
    turn.session.messages.append(Message("assistant", text))
    return _reply(turn, text)


async def _apply_message_hooks(turn: Turn, message: Message) -> Message:
    """Return the message with what hooks add to it; raises where one refuses it."""
    from lyra.agents.turn.hook_points import before_message

    message, refusal = await before_message(turn, message)
    if refusal:
        raise _make_failure("message_refused", turn.agent, detail=refusal)
    return message


async def _iterate(turn: Turn, execution: AgentExecution) -> Any:
    """Ask the model and run its tools until it answers."""
    agent, session, process = turn.agent, turn.session, turn.process
    execution.move(AgentState.THINKING)
    empty, misfits, repeats = 0, 0, None
    for iteration in range(agent.max_iterations):
        if iteration:
            session.tools.renew(process)
        if turn.runtime.notices or process.replay is not None:
            add_notices(turn)
        if agent.context is not None or session.ledger.counted > CHECK_TOKENS:
            await fit(turn)
        try:
            completion = await ask_model(turn)
        except ModelError as error:
            completion = await _ask_for_less(turn, error)
        answer = completion.message
        session.messages.append(answer)
        if completion.stop_reason in _WITHHELD:
            _check_usable(turn, completion)
        calls = answer.tool_calls
        if calls:
            execution.move(AgentState.EXECUTING_TOOLS)
            results = await run_tools(turn, calls)
            _take_results(turn, repeats := repeats or RepeatGuard(), completion, results)
            _check_not_ended(turn)
            execution.move(AgentState.THINKING)
            continue
        if completion.stop_reason == CUT_BY_PROVIDER and _is_continued(turn, completion):
            continue
        text = answer.text
        if not text or text.isspace() or completion.stop_reason == BROKEN_CALL:
            _check_uncut(turn, completion)
            empty += 1
            if empty >= _EMPTY_MAX:
                raise _make_failure("empty", agent)
            session.messages.append(Message("user", BAD_CALL if completion.stop_reason == BROKEN_CALL else _PLEASE))
            continue
        text = last_answer(session.messages) if turn.continued else text
        turn.status = completion.stop_reason if completion.stop_reason in _CUT else "success"
        try:
            value = agent.output.read(text) if agent.output is not None else _reply(turn, text)
        except ValueError as misfit:
            _check_uncut(turn, completion)
            misfits += 1
            if misfits > agent.output_retries:
                raise _make_failure("output_invalid", agent, detail=str(misfit)) from None
            _ask_for_json(turn, text, misfit)
            continue
        if session.hooks is None and (process.replay is None or not turn.has_hooks):
            return value
        if not await _goes_on(turn, text, is_last=iteration + 1 == agent.max_iterations):
            return value
    raise _make_failure("max_iterations", agent, iterations=agent.max_iterations)


async def _ask_for_less(turn: Turn, error: ModelError) -> Completion:
    """Return the answer to a shorter part of the conversation, where that was too long for the model."""
    if error.kind != "context_overflow" or not await fit(turn, overflow=True):
        raise error
    return await ask_model(turn)


def _ask_for_json(turn: Turn, text: str, misfit: ValueError) -> None:
    """Ask the model again, as its answer does not fit the wanted type."""
    if turn.sink is not None:
        turn.sink.put(Restart(text))
    request = f"{misfit}. Answer again with JSON that fits the schema, and nothing else."
    turn.session.messages.append(Message("user", request))


def _check_usable(turn: Turn, completion: Completion) -> None:
    """Raise for an answer that its provider withheld, or that the budget cut off."""
    if completion.stop_reason == "content_filter":
        raise _make_failure("content_filter", turn.agent)
    if completion.stop_reason == CUT_BY_BUDGET and not turn.agent.fit_budget:
        raise _cut(turn, completion.text)


def _take_results(turn: Turn, repeats: RepeatGuard, completion: Completion, results: Message) -> None:
    """Add the results to the conversation, with a notice where the model goes round in circles; raises where it was
    told and goes on."""
    pairs = []
    for call, result in zip(completion.message.tool_calls, results.tool_results, strict=True):
        tool = turn.session.tools.get(call.name)
        if tool is None or not tool.polling:
            pairs.append((call, result))
    status, notice = repeats.check(
        [call for call, _ in pairs], [result for _, result in pairs], completion.message.text
    )
    turn.session.messages.append(add_to_result(results, notice) if notice else results)
    if status:
        raise _make_failure(status, turn.agent, tool=pairs[0][0].name)


def _is_continued(turn: Turn, completion: Completion) -> bool:
    """Return whether the model is asked to go on, as its limit cut the answer off: so many times in a turn, and never
    for an answer with a type, of which half is nothing."""
    text = completion.message.text.strip()
    if turn.continued >= turn.agent.continuations:
        return False
    if text and turn.agent.output is not None:
        return False
    turn.continued += 1
    turn.session.messages.append(Message("user", GO_ON if text else NOTHING_CAME))
    kernel = turn.runtime.kernel
    if kernel.agents_heard and turn.process.replay is None:
        facts = {"agent": turn.agent.name, "times": turn.continued, "most": turn.agent.continuations}
        kernel.publish(turn.process.pid, "answer.continued", facts)
    return True


def _check_not_ended(turn: Turn) -> None:
    """Raise where a hook has ended the turn."""
    if turn.ended_by:
        raise _make_failure("ended_by_hook", turn.agent, detail=turn.ended_by)


async def _goes_on(turn: Turn, text: str, *, is_last: bool) -> bool:
    """Return whether hooks have the model continue after this answer. `is_last`: it may not be asked again."""
    from lyra.agents.turn.hook_points import check_stop

    refusal = await check_stop(turn, text)
    if refusal is None or is_last:
        return False
    turn.refusals += 1
    if turn.agent.output is not None and turn.sink is not None:
        turn.sink.put(Restart(text))
    turn.session.messages.append(Message("user", refusal))
    return True


def _make_failure(status: str, agent: AgentDeclaration, **fields: Any) -> AgentFailed:
    detail = f" ({fields['detail']})" if "detail" in fields else ""
    message = f"agent {agent.name} gave no answer: {STATUSES[status]}{detail}"
    return AgentFailed(message, hint=_HINTS[status], status=status, **fields)


def _check_uncut(turn: Turn, completion: Completion) -> None:
    """Raise where an answer that cannot be used was cut: the next one would end at the same place."""
    if completion.stop_reason == CUT_BY_BUDGET:
        raise _cut(turn, completion.text) from None
    if completion.stop_reason == CUT_BY_PROVIDER:
        raise _make_failure("max_tokens", turn.agent, output_tokens=completion.usage.output_tokens) from None


def _cut(turn: Turn, text: str) -> BudgetExceeded:
    """Return the error of an answer that the budget cut, with what the whole turn cost."""
    session = turn.session
    assert session.execution is not None
    cost_usd, tokens_in, tokens_out = session.metrics.count_since(session.execution.before)
    return cut_by_budget(turn.agent.name, text, cost_usd=cost_usd, input_tokens=tokens_in, output_tokens=tokens_out)


def _reply(turn: Turn, text: str) -> Reply:
    """Return the answer with the tokens and the money it took, the helpers' part included."""
    session = turn.session
    assert session.execution is not None
    reply = (MarkedReply if turn.process.core.taint.state.pids and session.tainted else Reply)(text)
    taken = session.metrics.count_since(session.execution.before)
    reply.cost_usd, reply.input_tokens, reply.output_tokens = taken
    reply.status = turn.status
    return reply


async def system_prompt(turn: Turn) -> str:
    """Return the system prompt of this turn: the agent's own, and the remembered items that fit the message."""
    agent, session, runtime = turn.agent, turn.session, turn.runtime
    if isinstance(agent.system, str) and agent.memory is None:
        return _mask_prompt(turn, agent.system)
    system = agent.system if isinstance(agent.system, str) else await _prompt_of_function(turn)
    if agent.memory is not None:
        remembered = read_remembered(runtime, turn.process, agent.memory, session.messages[-1].text)
        system = "\n\n".join(part for part in (system, remembered) if part)
    return runtime.clean(system) if system else system


def _mask_prompt(turn: Turn, system: str) -> str:
    """Return a prompt that never changes with known keys masked: once, until other keys are known."""
    keys, cache = turn.runtime.keys.prepared, turn.session.cache
    known = cache.prompt
    if known is None or known[0] is not keys:
        known = cache.prompt = (keys, keys.mask(system))
    return known[1]


async def _prompt_of_function(turn: Turn) -> str:
    """Return the prompt that the agent's system function gives; on a replay, the one it gave then."""
    process, runtime, agent = turn.process, turn.runtime, turn.agent
    text: Any = ""
    if not process.replay or process.keys not in process.replay:
        assert callable(agent.system)
        text = agent.system(turn.session)
        if asyncio.iscoroutine(text):
            text = await text
        if text is None:
            text = ""
        elif not isinstance(text, str):
            message = f"the system function of agent {agent.name} gave {type(text).__name__}, not text"
            raise ConfigError(message, key="system")
    return str(read(process, "system", lambda: runtime.clean(str(text))))
