"""The loop: model and tools in turn, its bounds, its failures, its cancellation."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pytest

import lyra
from lyra import Agent, Image, Kernel, tool
from lyra.agents.session.events import Text
from lyra.errors import (
    AgentFailed,
    BudgetExceeded,
    DeadlineExceeded,
    ModelError,
    ProcessExit,
    ToolError,
)
from tests.agents.support import OWN, Recorded, calls, run, says, virtual
from tests.limits import within

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def asked(agent: Agent, *messages: Any, **options: Any) -> Any:
    """The last answer, and the process while its kernel was open."""
    async with Kernel() as kernel:
        process = await kernel.spawn(agent, **options)
        answer = None
        for message in messages:
            answer = await process.send(message)
        return answer, process.messages, process.metrics


# ---------------------------------------------------------------------- tools


def test_a_tool_is_called_and_its_result_told():
    """Model → tool → model → answer; the transcript holds all of it in order."""
    model = says(calls("add", a=2, b=3), "It is {result}.")
    answer, messages, metrics = run(asked(Agent("sums", model=model, tools=[add]), "2 + 3?"))
    assert answer == "It is 5."
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2].tool_results[0].output == "5"
    assert (metrics.calls, metrics.tool_calls, metrics.turns, metrics.tool_errors) == (2, 1, 1, 0)


def several(name: str, count: int) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": {"n": n}} for n in range(count)]}


@pytest.mark.timed
def test_eight_one_second_tools_take_one_second():
    """The calls of a turn run together, sync functions in threads: 8 × 1 s in at most 1.3 s of real time."""

    @tool
    def slow(n: int) -> int:
        time.sleep(1.0)
        return n

    agent = Agent("a", model=says(several("slow", 8), "{result}"), tools=[slow])
    began = time.monotonic()
    answer, _, _ = run(asked(agent, "go"))
    within(time.monotonic() - began, 1.3)
    assert answer.split() == [str(n) for n in range(8)]


def test_results_come_in_call_order():
    """However long each takes: the first call's result is the first."""

    @tool
    async def slow(n: int) -> int:
        await asyncio.sleep(10 - n)
        return n

    agent = Agent("a", model=says(several("slow", 8), "{result}"), tools=[slow])
    answer, _, _ = virtual(asked(agent, "go"))
    assert answer.split() == [str(n) for n in range(8)]


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (8, 8), (50, 12)])
def test_no_more_tools_at_a_time_than_the_agent_says(limit, most):
    """`max_parallel_tools` bounds what runs together."""
    running, seen = 0, 0

    @tool
    async def work(n: int) -> int:
        nonlocal running, seen
        running += 1
        seen = max(seen, running)
        await asyncio.sleep(1)
        running -= 1
        return n

    agent = Agent("a", model=says(several("work", 12), "done"), tools=[work], max_parallel_tools=limit)
    virtual(asked(agent, "go"))
    assert seen == most


def test_one_failing_tool_does_not_stop_the_others():
    """Its error is a result that the model reads; the others' results are there."""

    @tool
    async def pick(n: int) -> str:
        if n == 1:
            raise ValueError("no such number")
        return f"got {n}"

    agent = Agent("a", model=says(several("pick", 3), "{result}"), tools=[pick])
    answer, messages, metrics = run(asked(agent, "go"))
    assert answer.splitlines() == ["got 0", "ValueError: no such number", "got 2"]
    assert [result.is_error for result in messages[2].tool_results] == [False, True, False]
    assert metrics.tool_errors == 1


def test_a_tool_error_is_told_with_its_hint():
    """A LyraError's sentence and hint are for the model too."""

    @tool
    def shut() -> str:
        raise ToolError("the shop is shut", hint="try tomorrow")

    answer, _, _ = run(asked(Agent("a", model=says(calls("shut"), "{result}"), tools=[shut]), "go"))
    assert answer == "the shop is shut. try tomorrow"


def test_an_unknown_tool_is_told():
    """A model that calls what is not there is told what is."""
    answer, _, _ = run(asked(Agent("a", model=says(calls("sub", a=1), "{result}"), tools=[add]), "go"))
    assert answer == "there is no tool 'sub'; there are: add"


def test_bad_arguments_are_told():
    """Arguments that do not fit the hints never reach the function."""
    answer, _, _ = run(asked(Agent("a", model=says(calls("add", a="x", b=1), "{result}"), tools=[add]), "go"))
    assert answer.startswith("bad arguments for add:")


def test_a_tool_needs_what_it_needs():
    """A Grant without the capability: the model is told that it is denied, and the function never runs."""
    ran = []

    @tool(needs="fs.read:/data/**")
    def peek() -> str:
        ran.append(1)
        return "secret"

    agent = Agent("a", model=says(calls("peek"), "{result}"), tools=[peek])
    answer, _, _ = run(asked(agent, "go", grant=OWN))
    assert "fs.read" in answer
    assert not ran
    answer, _, _ = run(
        asked(Agent("b", model=says(calls("peek"), "{result}"), tools=[peek]), "go", grant=[*OWN, "fs.read:/**"])
    )
    assert answer == "secret"


def test_a_tool_with_a_key_gets_one():
    """`idempotency_key` is not the model's to choose; the door gives the same one for every try."""
    keys = []

    @tool
    async def pay(amount: int, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        return f"paid {amount}"

    assert "idempotency_key" not in pay.schema["properties"]
    answer, _, _ = run(asked(Agent("a", model=says(calls("pay", amount=3), "{result}"), tools=[pay]), "go"))
    assert answer == "paid 3"
    assert len(keys) == 1
    assert keys[0]


def test_a_long_result_is_cut_in_the_middle():
    """A model reads a bounded result, and is told what is missing."""

    @tool
    def read() -> str:
        return "a" * 300_000 + "z"

    _, messages, _ = run(asked(Agent("a", model=says(calls("read"), "ok"), tools=[read]), "go"))
    output = messages[2].tool_results[0].output
    assert len(output) < 210_000
    assert "100001 characters left out" in output
    assert output.endswith("z")


# ---------------------------------------------------------------------- guards


def status_of(agent: Agent, message: str = "go") -> str:
    with pytest.raises(AgentFailed) as caught:
        run(asked(agent, message))
    return str(caught.value.fields["status"])


def test_turns_are_bounded():
    """A model that calls another tool each time ends as `max_iterations`, after exactly so many calls."""
    model = Recorded(
        lambda request: {"tool_calls": [{"name": "add", "arguments": {"a": len(request.messages), "b": 0}}]}
    )
    assert status_of(Agent("a", model=model, tools=[add], max_iterations=4)) == "max_iterations"
    assert len(model.requests) == 4


def test_repetition_ends_a_turn():
    """The same calls with the same results six times in a row are a loop."""
    model = says(calls("add", a=1, b=1))
    assert status_of(Agent("a", model=model, tools=[add])) == "repetition"
    assert len(model.requests) == 6


def test_other_calls_in_between_are_no_repetition():
    """Only calls in a row count."""
    first, second = calls("add", a=1, b=1), calls("add", a=2, b=2)
    agent = Agent("a", model=says(first, first, second, first, first, "done"), tools=[add])
    assert run(asked(agent, "go"))[0] == "done"


def test_empty_answers_are_asked_again_and_then_an_end():
    """Twice nothing is asked again, three times is `empty`."""
    assert run(asked(Agent("a", model=says("", "", "at last")), "go"))[0] == "at last"
    assert status_of(Agent("a", model=says(""))) == "empty"


def test_a_withheld_answer_has_its_own_status():
    """Content filters are no answer."""
    assert status_of(Agent("a", model=says({"text": "x", "stop_reason": "content_filter"}))) == "content_filter"


def test_a_cut_answer_says_so():
    """An answer cut at max_tokens is an answer, with its status."""
    answer, _, _ = run(asked(Agent("a", model=says("one two three four five six"), max_tokens=2), "go"))
    assert answer.status == "max_tokens"
    assert answer == "one two "


def test_a_failed_turn_leaves_no_trace_in_the_conversation():
    """The next message starts from what was before; the failure is counted."""

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=says("one", "", "", "", "two")))
            assert await process.send("first") == "one"
            with pytest.raises(AgentFailed):
                await process.send("second")
            assert len(process.messages) == 2
            assert process.metrics.errors == 1
            assert await process.send("third") == "two"
            return [message.text for message in process.messages]

    assert run(main()) == ["first", "one", "third", "two"]


# ---------------------------------------------------------------------- prompts and content


def test_a_conversation_is_remembered():
    """Each question goes with what was said before."""
    model = says("one", "two")
    run(asked(Agent("a", model=model, system="Be brief."), "first", "second"))
    assert [message.text for message in model.requests[1].messages] == ["first", "one", "second"]
    assert model.requests[1].system == "Be brief."


def test_system_prompts_may_be_functions():
    """Sync or async, asked for each message, with the session."""
    model = says("ok")

    async def system(session: Any) -> str:
        return f"{len(session.messages)} messages"

    run(asked(Agent("a", model=model, system=system), "one", "two"))
    run(asked(Agent("b", model=model, system=lambda session: session.agent.name), "one"))
    assert [request.system for request in model.requests] == ["1 messages", "3 messages", "b"]


def test_images_reach_the_model():
    """A list of text and Image is one message of parts."""
    model = says("a cat")
    run(asked(Agent("a", model=model), ["What is this?", Image.from_bytes(PNG)]))
    sent = model.requests[0].messages[0]
    assert sent.content[0] == {"type": "text", "text": "What is this?"}
    assert isinstance(sent.content[1], dict)
    assert sent.content[1]["media_type"] == "image/png"


def test_an_agent_knows_its_settings():
    """Temperature, top_p, max_tokens and thinking reach the request."""
    model = says("ok")
    run(asked(Agent("a", model=model, temperature=0.5, top_p=0.9, max_tokens=77, thinking_tokens=20), "x"))
    request = model.requests[0]
    assert (request.temperature, request.top_p, request.max_tokens, request.thinking_tokens) == (0.5, 0.9, 77, 20)


# ---------------------------------------------------------------------- structured output


@dataclass
class City:
    name: str
    people: int


def test_structured_output_is_read():
    """The answer is a value of the type; the schema goes to the model."""
    model = says('```json\n{"name": "Oslo", "people": 700000}\n```')
    answer, _, _ = run(asked(Agent("a", model=model, output=City), "Norway?"))
    assert answer == City("Oslo", 700_000)
    schema = model.requests[0].output_schema
    assert schema is not None
    assert set(schema["properties"]) == {"name", "people"}


def test_a_misfit_is_asked_again():
    """What does not fit is told to the model; the second answer counts."""
    model = says('{"name": "Oslo"}', '{"name": "Oslo", "people": 7}')
    answer, _, _ = run(asked(Agent("a", model=model, output=City), "Norway?"))
    assert answer == City("Oslo", 7)
    assert "people" in model.requests[1].messages[-1].text


def test_a_schema_that_is_never_met_ends():
    """After `output_retries` more tries: `output_invalid`, and the misfit is named."""
    model = says("no")
    assert status_of(Agent("a", model=model, output=City, output_retries=1)) == "output_invalid"
    assert len(model.requests) == 2


def test_a_list_is_an_output_too():
    """What is no object travels wrapped."""
    answer, _, _ = run(asked(Agent("a", model=says('{"value": [1, 2]}'), output=list[int]), "go"))
    assert answer == [1, 2]


# ---------------------------------------------------------------------- cancel and time-outs


def slow_tool(seen: dict[str, float]) -> Any:
    @tool
    async def wait() -> str:
        seen["began"] = time.monotonic()
        try:
            await asyncio.sleep(60)
        finally:
            seen["ended"] = time.monotonic()
        return "never"

    return wait


@pytest.mark.timed
def test_cancel_reaches_a_running_tool_in_100_ms():
    """The tool sees CancelledError at once, and the process goes on with the next message."""
    seen: dict[str, float] = {}

    async def main():
        async with Kernel() as kernel:
            agent = Agent("a", model=says(calls("wait"), "next"), tools=[slow_tool(seen)])
            process = await kernel.spawn(agent)
            pending = process.send_async("go")
            while "began" not in seen:
                await asyncio.sleep(0.001)
            assert not pending.done()
            asked_at = time.monotonic()
            assert pending.cancel()
            while "ended" not in seen:
                await asyncio.sleep(0.001)
            within(seen["ended"] - asked_at, 0.1)
            assert pending.cancelled()
            assert pending.done()
            with pytest.raises(asyncio.CancelledError):
                await pending
            assert await process.send("again") == "next"
            assert [message.text for message in process.messages] == ["again", "next"]

    run(main())


class Endless(Recorded):
    """A model whose stream never ends by itself, and that knows when it was closed."""

    def __init__(self) -> None:
        super().__init__(["unused"])
        self.closed_at = 0.0
        self.open = 0

    async def stream(self, request):
        from lyra.models.stream import Started, TextDelta

        self.open += 1
        try:
            yield Started("1", "endless")
            while True:
                yield TextDelta("word ")
                await asyncio.sleep(0.001)
        finally:
            self.open -= 1
            self.closed_at = time.monotonic()


@pytest.mark.timed
def test_cancel_reaches_an_open_stream_in_100_ms():
    """The provider's generator is closed where it waits."""
    model = Endless()

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model))
            pending = process.send_async("go")
            while not model.open:
                await asyncio.sleep(0.001)
            asked_at = time.monotonic()
            pending.cancel()
            while model.open:
                await asyncio.sleep(0.001)
            within(model.closed_at - asked_at, 0.1)

    run(main())


@pytest.mark.timed
def test_leaving_a_stream_early_ends_the_work():
    """`break` out of `async for` (and closing it) cancels the model's stream; the process lives on."""
    model = Endless()

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model))
            pieces: Any = process.stream("go").__aiter__()
            assert await anext(pieces) == "word "
            left_at = time.monotonic()
            await pieces.aclose()
            while model.open:
                await asyncio.sleep(0.001)
            within(time.monotonic() - left_at, 0.1)
            assert process.alive
            assert process.messages == ()

    run(main())


def test_leaving_with_break_ends_the_work_too():
    """Without an explicit close: the stream object going away is enough."""
    model = Endless()

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model))
            async for _ in process.stream("go"):
                break
            for _ in range(100):
                if not model.open:
                    break
                await asyncio.sleep(0.005)
            assert not model.open

    run(main())


def test_a_send_that_takes_too_long_is_a_deadline():
    """`timeout=` raises DeadlineExceeded, stops the work, and leaves the process usable."""
    model = says({"text": "late", "first_s": 60}, "soon")

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model))
            with pytest.raises(DeadlineExceeded, match=r"0\.05"):
                await process.send("one", timeout=0.05)
            assert await process.send("two", timeout=5) == "soon"

    run(main())


def test_a_cancelled_waiter_gives_up():
    """Cancelling the task that waits is giving up."""
    model = Endless()

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model))
            waiter = asyncio.create_task(process.send("go"))
            while not model.open:
                await asyncio.sleep(0.001)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            for _ in range(100):
                if not model.open:
                    break
                await asyncio.sleep(0.001)
            assert not model.open

    run(main())


def test_giving_up_as_the_answer_comes():
    """Cancelled in the very moment of the answer: the process, by then waiting for the next message, is left alone."""

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=says({"text": "one", "first_s": 0.01}, "two")))
            pending = process.send_async("1")

            async def wait() -> None:
                await pending

            pending._get_future().add_done_callback(lambda _: waiter.cancel())  # before the waiter is woken
            waiter = asyncio.create_task(wait())
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert await process.send("2") == "two"
            return [message.text for message in process.messages]

    assert run(main()) == ["1", "one", "2", "two"]


def test_giving_up_on_a_message_that_waits():
    """A question that was not begun yet is skipped, and the one before it is not disturbed."""
    model = says({"text": "first", "first_s": 0.05}, "third")

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model))
            first, second, third = (process.send_async(text) for text in ("1", "2", "3"))
            second.cancel()
            assert await first == "first"
            assert await third == "third"
            assert [message.text for message in process.messages] == ["1", "first", "3", "third"]

    run(main())


def test_stop_ends_what_it_is_doing():
    """A caller that waits for a stopped process gets an error."""
    model = Endless()

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model))
            pending = process.send_async("go")
            while not model.open:
                await asyncio.sleep(0.001)
            await process.stop()
            assert not process.alive
            assert not model.open
            with pytest.raises((AgentFailed, ProcessExit)):
                await pending
            with pytest.raises((AgentFailed, ProcessExit)):
                await process.send("still there?")

    run(main())


def test_send_async_is_a_future():
    """done, result and exception, without waiting."""

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=says("yes", {"error": {"kind": "auth"}})))
            good = process.send_async("1")
            assert not good.done()
            assert await good == "yes"
            assert good.done()
            assert good.result() == "yes"
            assert good.exception() is None
            assert not good.cancel()
            bad = process.send_async("2")
            with pytest.raises(ModelError):
                await bad
            assert isinstance(bad.exception(), ModelError)

    run(main())


# ---------------------------------------------------------------------- streams


def test_a_stream_gives_text_and_then_the_whole():
    """Pieces joined are the answer; awaiting the stream gives it too."""

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            pieces = [piece async for piece in process.stream("one two three")]
            assert pieces == ["one ", "two ", "three"]
            assert await process.stream("four five") == "four five"

    run(main())


def test_a_stream_of_events_tells_everything():
    """tool_start, tool_end, text_delta, usage and done, in their order."""
    agent = Agent("a", model=says(calls("add", a=1, b=2), {"text": "three", "thinking": "hm"}), tools=[add])

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            return [event async for event in process.stream("go", events=True)]

    events = run(main())
    assert [event.type for event in events] == [
        *("usage", "tool_start", "tool_end"),
        *("thinking_delta", "text_delta", "usage", "done"),
    ]
    assert events[2].to_data() == {
        "type": "tool_end",
        "id": events[1].id,
        "name": "add",
        "output": "3",
        "is_error": False,
    }
    assert events[-1].status == "success"


def test_a_question_is_an_event_of_the_stream():
    """A tool that asks a human: the reader of the stream sees the question and can answer it."""

    @tool
    async def confirm(ctx: Any) -> str:
        answer = await ctx.ask("Really?", kind="confirmation")
        return "yes" if answer.approved else "no"

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=says(calls("confirm"), "{result}"), tools=[confirm]))
            types = []
            async for event in process.stream("go", events=True):
                types.append(event.type)
                if event.type == "interrupt":
                    assert (event.kind, event.question) == ("confirmation", "Really?")
                    kernel.resolve_interrupt(event.id, {"approved": True, "text": "yes"})
            return types, process.messages[-1].text

    types, answer = run(main())
    assert types == ["usage", "tool_start", "interrupt", "tool_end", "text_delta", "usage", "done"]
    assert answer == "yes"


def test_a_listener_may_answer_at_once():
    """A question is in the list of interrupts before its event is published."""

    @tool
    async def confirm(ctx: Any) -> str:
        return str((await ctx.ask("Really?")).text)

    async def main():
        async with Kernel() as kernel:
            kernel.on_event(
                lambda event: (
                    event.kind == "interrupt.created"
                    and kernel.resolve_interrupt(event.data["id"], {"text": "of course"})
                )
            )
            process = await kernel.spawn(Agent("a", model=says(calls("confirm"), "{result}"), tools=[confirm]))
            return await process.send("go")

    assert run(main()) == "of course"


def test_a_failed_stream_tells_and_raises():
    """The error event and done come first, then the exception."""

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=says({"error": {"kind": "auth"}})))
            events = []
            with pytest.raises(ModelError):
                async for event in process.stream("go", events=True):
                    events.append(event.type)  # noqa: PERF401 (it raises in between)
            return events

    assert run(main()) == ["error", "done"]


# ---------------------------------------------------------------------- failures and supervision


def test_a_retried_answer_is_shown_once():
    """A stream that breaks off is tried again, and nothing of it is shown twice."""
    broken = {"text": "one two three", "error": {"kind": "overloaded", "after_chunks": 2, "attempts": 1}}
    agent = Agent("a", model=says(broken), retry={"max_attempts": 3, "backoff": {"initial_s": 0.01}})

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            pieces = [piece async for piece in process.stream("go")]
            return "".join(pieces), process.metrics.retries

    assert run(main()) == ("one two three", 1)


def test_a_fallback_answers_where_the_first_cannot():
    """A model that is down gives way to the next; one that says the request is wrong does not."""
    down = says({"error": {"kind": "overloaded"}})
    wrong = says({"error": {"kind": "bad_request"}})
    spare = says("spare")
    quick = {"max_attempts": 1}
    answer, _, _ = run(asked(Agent("a", model=down, fallback=[spare], retry=quick), "go"))
    assert answer == "spare"
    with pytest.raises(ModelError):
        run(asked(Agent("a", model=wrong, fallback=[spare], retry=quick), "go"))
    assert len(spare.requests) == 1


def test_a_budget_ends_a_turn():
    """Money that does not reach for the next call is BudgetExceeded; the tool calls of it are not run."""
    model = says("fine", price={"input_usd_per_mtok": 1, "output_usd_per_mtok": 1})
    with pytest.raises(BudgetExceeded):
        run(asked(Agent("a", model=model, budget="$0.000001"), "word " * 100))
    assert model.requests == []


def test_a_crash_is_met_by_its_supervisor():
    """A system prompt that raises crashes the process; its guard starts it anew and the handle stays good."""
    crashes = [1]

    def system(_session: Any) -> str:
        if crashes:
            crashes.pop()
            raise RuntimeError("broken prompt")
        return "fine"

    async def main():
        async with Kernel() as kernel:
            agent = Agent("a", model=says("hello"), system=system, supervision={"strategy": "restart"})
            process = await kernel.spawn(agent, name="helper")
            with pytest.raises(AgentFailed, match="broken prompt"):
                await process.send("one")
            assert await process.send("two") == "hello"
            assert process.alive
            assert process.name == "helper"
            assert [message.text for message in process.messages] == ["two", "hello"]

    run(main())


def test_one_liners():
    """`lyra.run` and `lyra.stream` without a kernel in sight, in scripts and in async code."""
    echo = Agent("echo", model="sim/echo")
    assert lyra.run(echo, "hello") == "hello"
    assert list(lyra.stream(echo, "one two")) == ["one ", "two"]

    async def main():
        return await lyra.run(echo, "inside"), [piece async for piece in lyra.stream(echo, "a b")]

    assert run(main()) == ("inside", ["a ", "b"])


def test_a_stream_of_events():
    """With `events=True`, `lyra.stream` gives what happens on the way, the text among it."""
    agent = Agent("a", model=says("one two"))
    events = list(lyra.stream(agent, "go", events=True))
    assert "".join(event.text for event in events if isinstance(event, Text)) == "one two"
    assert not any(isinstance(event, str) for event in events)


def test_a_stream_has_a_budget():
    """`lyra.stream` spends no more than it is given: the model is not asked."""
    model = says("one two", price={"input_usd_per_mtok": 1, "output_usd_per_mtok": 1_000_000})
    with pytest.raises(BudgetExceeded):
        list(lyra.stream(Agent("a", model=model), "go", budget="$0.01"))
    assert not model.requests


def test_questions_of_a_stream_are_answered():
    """By the function that `lyra.stream` is given as `answer`."""

    @tool
    async def look(ctx: Any) -> str:
        """Look."""
        return str((await ctx.ask("Which?")).text)

    agent = Agent("a", model=says(calls("look"), "{result}"), tools=[look])
    assert "".join(lyra.stream(agent, "go", answer=lambda question: f"re: {question.question}")) == "re: Which?"
