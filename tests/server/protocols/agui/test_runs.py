"""AG-UI: conversations of a front end with agents, in the official types."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lyra import Agent, tool
from lyra.errors import ToolError
from lyra.models.sim import SimProvider
from lyra.server.protocols.agui.threads import AguiThreads
from tests.server.http.support import ADA, client, echo, in_loop, scripted, serving
from tests.server.protocols.agui.support import (
    Served,
    events_of,
    kinds_of,
    last_messages,
    run,
    run_input,
    sequence,
    text_of,
)


def test_a_run_streams_the_answer_and_tells_the_conversation() -> None:
    """A message, its answer in pieces, the steps, the usage and the whole conversation, in the protocol's order."""

    async def main() -> None:
        async with serving(echo()) as served:
            events = await run(served.ada, run_input("t1", "r1", "good morning all"))
            assert kinds_of(events) == [
                "RUN_STARTED",
                "STEP_STARTED",
                "TEXT_MESSAGE_START",
                *["TEXT_MESSAGE_CONTENT"] * 3,
                "TEXT_MESSAGE_END",
                "STEP_FINISHED",
                "MESSAGES_SNAPSHOT",
                "RUN_FINISHED",
            ]
            assert text_of(events) == "good morning all"
            assert (events[0].thread_id, events[0].run_id, events[0].protocol_version) == ("t1", "r1", "1.0")
            assert events[-1].outcome.type == "success"
            assert events[-1].usage[0].output_tokens > 0
            messages = last_messages(events)
            assert [(row["role"], row["content"]) for row in messages] == [
                ("user", "good morning all"),
                ("assistant", "good morning all"),
            ]
            assert messages[0]["id"] == "u0"
            assert messages[1]["id"] == events[2].message_id

    in_loop(main())


def test_a_thread_is_one_conversation_of_one_user_with_one_agent(tmp_path: Path) -> None:
    """The next run of a thread knows what was said, also after a restart of the server; another user's thread of the
    same id is another conversation, and so is another agent's."""
    store = tmp_path / "store.db"
    replies = [f"answer {number}" for number in range(9)]

    def agents() -> tuple[Agent[Any], ...]:
        return sequence("helper", *replies), echo()

    async def first() -> list[Any]:
        async with serving(*agents(), store=store) as served:
            events = await run(served.ada, run_input("t", "r1", "one"), "helper")
            assert len(last_messages(await run(served.bob, run_input("t", "r1", "bobs"), "helper"))) == 2
            assert len(last_messages(await run(served.ada, run_input("t", "r1", "one")))) == 2
            return last_messages(events)

    async def second(before: list[Any]) -> None:
        async with serving(*agents(), store=store) as served:
            again = await run(served.ada, run_input("t", "r2", *before, "two"), "helper")
            messages = last_messages(again)
            assert [row["content"] for row in messages if row["role"] == "user"] == ["one", "two"]
            assert [row["id"] for row in messages[:2]] == [row["id"] for row in before]
            hydrated = await run(served.ada, run_input("t", "r3"), "helper")
            assert kinds_of(hydrated) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
            assert [row["content"] for row in last_messages(hydrated)] == [row["content"] for row in messages]

    in_loop(second(in_loop(first())))


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    if city == "Atlantis":
        raise ToolError("there is no such city")
    return f"sunny in {city}"


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": call_id, "name": name, "arguments": arguments}]}


def test_tool_calls_are_told_with_their_arguments_and_results() -> None:
    """Calls that end well and calls that fail: both have a result, and the snapshot has them as messages."""
    agent = sequence(
        "helper", call("weather", city="Rome"), call("weather", "c2", city="Atlantis"), "done", tools=[weather]
    )

    async def main() -> None:
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t", "r", "how is it?"), "helper")
            args = {event.tool_call_id: event.delta for event in events if event.type == "TOOL_CALL_ARGS"}
            assert args == {"c1": '{"city":"Rome"}', "c2": '{"city":"Atlantis"}'}
            results = {event.tool_call_id: event.content for event in events if event.type == "TOOL_CALL_RESULT"}
            assert results["c1"] == "sunny in Rome"
            assert "no such city" in results["c2"]
            assert text_of(events) == "done"
            assert kinds_of(events).count("STEP_STARTED") == 3
            messages = last_messages(events)
            assert [row["role"] for row in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
            assert messages[1]["toolCalls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Rome"}'}
            starts = [event for event in events if event.type == "TOOL_CALL_START"]
            assert [event.parent_message_id for event in starts] == [messages[1]["id"], messages[3]["id"]]
            assert messages[4]["error"]

    in_loop(main())


def test_reasoning_is_told_apart_from_the_answer() -> None:
    agent = sequence("helper", {"thinking": "let me see", "text": "yes"}, thinking_tokens=1024)

    async def main() -> None:
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t", "r", "x"), "helper")
            thought = "".join(event.delta for event in events if event.type == "REASONING_MESSAGE_CONTENT")
            assert thought == "let me see"
            assert text_of(events) == "yes"

    in_loop(main())


DELETE_RULES = {"ask": ["weather"]}


def asking_agent() -> Agent[Any]:
    return sequence("helper", call("weather", city="Rome"), "it is sunny", tools=[weather], permissions=DELETE_RULES)


async def interrupted(served: Served, **fields: Any) -> tuple[list[Any], Any]:
    events = await run(served.ada, run_input("t", "r1", "how is it?", **fields), "helper")
    outcome = events[-1].outcome
    assert outcome.type == "interrupt", events[-1]
    assert len(outcome.interrupts) == 1
    return last_messages(events), outcome.interrupts[0]


def test_a_run_that_needs_a_person_ends_as_interrupt_and_goes_on_with_the_answer() -> None:
    """The outcome names the call; the run that resumes has its result and the rest of the answer."""

    async def main() -> None:
        async with serving(asking_agent()) as served:
            messages, interrupt = await interrupted(served)
            assert interrupt.tool_call_id == "c1"
            assert interrupt.reason == "lyra:confirmation"
            assert "approved" in interrupt.response_schema["properties"]
            assert interrupt.expires_at is not None
            resume = [{"interruptId": interrupt.id, "status": "resolved", "payload": {"approved": True}}]
            events = await run(served.ada, run_input("t", "r2", *messages, resume=resume), "helper")
            assert [event.content for event in events if event.type == "TOOL_CALL_RESULT"] == ["sunny in Rome"]
            assert text_of(events) == "it is sunny"
            assert events[-1].outcome.type == "success"

    in_loop(main())


def test_a_resume_answers_every_open_interrupt_and_nothing_else() -> None:
    """A new message without the answer, an unknown interrupt, an answer twice and one after the answer are refused; the
    question stays open for a right answer; a run that brings nothing tells the interrupt again."""

    async def main() -> None:
        async with serving(asking_agent()) as served:
            messages, interrupt = await interrupted(served)
            no = {"interruptId": interrupt.id, "status": "cancelled"}

            async def status(*more: Any, **fields: Any) -> int:
                given = run_input("t", "r2", *messages, *more, **fields)
                return (await served.ada.post("/agui/helper", json=given)).status_code

            assert await status("hurry up") == 409
            assert await status(resume=[{**no, "interruptId": "int_none"}]) == 409
            assert await status(resume=[no, no]) == 409
            assert await status(resume=[{**no, "status": "resolved", "payload": {"approved": "x"}}]) == 400
            again = await run(served.ada, run_input("t", "r3", *messages), "helper")
            assert again[-1].outcome.interrupts[0].id == interrupt.id
            bobs = run_input("t", "r2", "x", resume=[no])
            assert (await served.bob.post("/agui/helper", json=bobs)).status_code == 409
            events = await run(served.ada, run_input("t", "r4", *messages, resume=[no]), "helper")
            result = next(event for event in events if event.type == "TOOL_CALL_RESULT")
            assert "was not run" in result.content
            assert await status(resume=[no]) == 409

    in_loop(main())


def test_an_interrupt_is_answered_after_a_restart(tmp_path: Path) -> None:
    """The server stops while a person is asked. The run that resumes on the new server ends with the answer."""
    store = tmp_path / "store.db"

    async def first() -> tuple[list[Any], Any]:
        async with serving(asking_agent(), store=store) as served:
            return await interrupted(served)

    async def second(messages: list[Any], interrupt: Any) -> None:
        async with serving(
            sequence("helper", "it is sunny", tools=[weather], permissions=DELETE_RULES), store=store
        ) as served:
            resume = [{"interruptId": interrupt.id, "status": "resolved", "payload": True}]
            events = await run(served.ada, run_input("t", "r2", *messages, resume=resume), "helper")
            assert text_of(events) == "it is sunny"
            roles = [row["role"] for row in last_messages(events)]
            assert roles == ["user", "assistant", "tool", "assistant"]

    in_loop(second(*in_loop(first())))


CONFIRM = {
    "name": "pick_colour",
    "description": "Let the user pick a colour",
    "parameters": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
}


def painting_agent(*more: Any) -> Agent[Any]:
    return sequence("helper", call("pick_colour", title="Wall"), *more)


def test_a_tool_of_the_front_end_is_run_there_and_its_result_comes_with_the_next_run() -> None:
    """The model sees the tool; its call ends the run; the tool message of the next run goes on with the turn."""
    model = SimProvider(script={"sequence": [call("pick_colour", title="Wall"), {"text": "painted"}]})
    agent = Agent("helper", model=model)

    async def main() -> None:
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t", "r1", "paint it", tools=[CONFIRM]), "helper")
            assert events[-1].outcome.type == "success"
            assert events[-1].outcome.pending_tool_call_ids == ["c1"]
            assert "TOOL_CALL_RESULT" not in kinds_of(events)
            messages = last_messages(events)
            assert messages[-1]["toolCalls"][0]["id"] == "c1"
            result = {"id": "mine", "role": "tool", "toolCallId": "c1", "content": '"teal"'}
            again = await run(served.ada, run_input("t", "r2", *messages, result, tools=[CONFIRM]), "helper")
            assert text_of(again) == "painted"
            assert "TOOL_CALL_RESULT" not in kinds_of(again)
            told = last_messages(again)
            assert [row["role"] for row in told] == ["user", "assistant", "tool", "assistant"]
            assert (told[2]["id"], told[2]["content"]) == ("mine", '"teal"')
            pid = next(pid for pid in served.kernel.processes if pid.startswith("agui-"))
            assert [row.output for row in served.kernel.agent(pid).messages[2].tool_results] == ['"teal"']
            assert served.kernel.taint.is_tainted(pid)  # what the page says is text from outside

    in_loop(main())


def test_a_tool_of_the_front_end_waits_over_a_restart(tmp_path: Path) -> None:
    """The call and the tool are in the store: the result may come to another server."""
    store = tmp_path / "store.db"

    async def first() -> list[Any]:
        async with serving(painting_agent(), store=store) as served:
            events = await run(served.ada, run_input("t", "r1", "paint it", tools=[CONFIRM]), "helper")
            assert events[-1].outcome.pending_tool_call_ids == ["c1"]
            return last_messages(events)

    async def second(messages: list[Any]) -> None:
        async with serving(sequence("helper", "painted"), store=store) as served:
            result = {"id": "mine", "role": "tool", "toolCallId": "c1", "content": "teal"}
            events = await run(served.ada, run_input("t", "r2", *messages, result, tools=[CONFIRM]), "helper")
            assert text_of(events) == "painted"
            assert [row["content"] for row in last_messages(events) if row["role"] == "tool"] == ["teal"]

    in_loop(second(in_loop(first())))


def test_a_call_that_the_front_end_does_not_answer_fails_and_the_new_message_is_answered() -> None:
    agent = painting_agent("then not", "second answer")

    async def main() -> None:
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t", "r1", "paint it", tools=[CONFIRM]), "helper")
            messages = last_messages(events)
            again = await run(served.ada, run_input("t", "r2", *messages, "never mind", tools=[CONFIRM]), "helper")
            assert text_of(again) == "then notsecond answer"
            told = last_messages(again)
            assert "no result" in next(row["content"] for row in told if row["role"] == "tool")
            assert told[-2]["content"] == "never mind"

    in_loop(main())


def test_a_tool_of_the_front_end_cannot_take_the_name_of_an_agents_tool() -> None:
    async def main() -> None:
        async with serving(sequence("helper", "x", tools=[weather])) as served:
            given = run_input("t", "r", "x", tools=[{"name": "weather", "description": "mine"}])
            assert (await served.ada.post("/agui/helper", json=given)).status_code == 409

    in_loop(main())


def test_state_is_shared_between_the_front_end_and_tools() -> None:
    """The state of the input is on the blackboard of the thread's group; what a tool writes there comes as a patch."""

    async def main() -> None:
        @tool
        async def paint(colour: str) -> str:
            """Paint it."""
            group = next(name for name in kernel.groups.names() if name.startswith("state."))
            assert kernel.groups.bb_get(group, "wall") == "white"
            await kernel.groups.bb_set(group, "wall", colour)
            await kernel.groups.bb_set(group, "a/b~c", [1])
            return "ok"

        agent = sequence("helper", call("paint", colour="teal"), "done", "again", tools=[paint])
        async with serving(agent) as served:
            kernel = served.kernel
            given = run_input("t", "r", "paint", state={"wall": "white"})
            events = await run(served.ada, given, "helper")
            snapshots = [event.snapshot for event in events if event.type == "STATE_SNAPSHOT"]
            assert snapshots == [{"wall": "white"}]
            patches = [row for event in events if event.type == "STATE_DELTA" for row in event.delta]
            assert [(row.op, row.path, row.value) for row in patches] == [
                ("replace", "/wall", "teal"),
                ("add", "/a~1b~0c", [1]),
            ]
            again = await run(served.ada, run_input("t", "r2", *last_messages(events), "more", state={}), "helper")
            assert next(event for event in again if event.type == "STATE_SNAPSHOT").snapshot["wall"] == "teal"

    in_loop(main())


def test_context_and_instructions_reach_the_model_and_are_not_told_as_the_users_words() -> None:
    async def main() -> None:
        async with serving(echo()) as served:
            given = run_input(
                "t",
                "r",
                {"id": "s", "role": "system", "content": "Be kind."},
                "hello",
                context=[{"description": "page", "value": "checkout"}],
            )
            events = await run(served.ada, given)
            assert "page: checkout" in text_of(events)
            assert "Be kind." in text_of(events)
            hydrated = await run(served.ada, run_input("t", "r2"))
            assert last_messages(hydrated)[0]["content"] == "hello"

    in_loop(main())


def test_history_fills_a_thread_that_is_empty() -> None:
    """A front end that brings a conversation from elsewhere goes on with it, calls and results included."""
    history: list[Any] = [
        {"id": "a", "role": "user", "content": "my name is Ada"},
        {
            "id": "b",
            "role": "assistant",
            "toolCalls": [{"id": "k", "type": "function", "function": {"name": "note", "arguments": '{"x":1}'}}],
        },
        {"id": "c", "role": "tool", "toolCallId": "k", "content": "noted"},
        {"id": "d", "role": "assistant", "content": "hello Ada"},
    ]

    async def main() -> None:
        async with serving(echo()) as served:
            events = await run(served.ada, run_input("t", "r", *history, "who am I?"))
            roles = [row["role"] for row in last_messages(events)]
            assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]

    in_loop(main())


def test_an_image_reaches_the_agent() -> None:
    part = {"type": "image", "source": {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}}
    parts = [{"type": "text", "text": "what is it?"}, part]

    async def main() -> None:
        async with serving(echo()) as served:
            events = await run(served.ada, run_input("t", "r", {"id": "u", "role": "user", "content": parts}))
            assert text_of(events) == "what is it?"
            pid = next(pid for pid in served.kernel.processes if pid.startswith("agui-"))
            kinds = [row["type"] for row in served.kernel.agent(pid).messages[0].content]
            assert kinds == ["text", "image"]

    in_loop(main())


def test_a_failure_in_the_turn_is_a_run_error() -> None:
    """An agent that fails ends the run with RUN_ERROR and its code; the thread can be used again."""
    agent = scripted("helper", {"user": "bad", "error": {"kind": "bad_request"}}, {"text": "fine"})

    async def main() -> None:
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t", "r", "bad"), "helper")
            assert events[-1].type == "RUN_ERROR"
            assert events[-1].code == "model_error"
            assert text_of(await run(served.ada, run_input("t", "r2", "x"), "helper")) == "fine"

    in_loop(main())


def test_what_is_wrong_before_the_stream_is_an_http_status() -> None:
    async def main() -> None:
        async with serving(echo()) as served:
            good = run_input("t", "r", "x")
            assert (await served.stranger.post("/agui/echo", json=good)).status_code == 401
            assert (await served.ada.post("/agui/none", json=good)).status_code == 404
            assert (await served.ada.post("/agui/echo", json={"threadId": "t"})).status_code == 400
            wrong = {**good, "messages": [{"id": "x", "role": "wizard", "content": "x"}]}
            answer = await served.ada.post("/agui/echo", json=wrong)
            assert answer.status_code == 400
            assert "messages.0" in answer.json()["error"]["message"]
            foreign = {"origin": "https://evil.example"}
            assert (await served.ada.post("/agui/echo", json=good, headers=foreign)).status_code == 403

    in_loop(main())


SLOW = {"text": "one two three four five six seven eight", "chunk_s": 0.05}


async def leave_early(served: Served, given: dict[str, Any]) -> None:
    async with served.ada.stream("POST", "/agui/helper", json=given) as response:
        text = ""
        async for piece in response.aiter_text():
            text += piece
            if "TEXT_MESSAGE_CONTENT" in text:
                break


async def until_idle(served: Served) -> Any:
    pid = next(pid for pid in served.kernel.processes if pid.startswith("agui-"))
    process = served.kernel.agent(pid)
    while process.current is not None:
        await asyncio.sleep(0.01)
    return process


def test_a_client_that_leaves_stops_the_turn() -> None:
    """Closing the stream is how a front end stops a run: the agent's work is given up and costs no more."""

    async def main() -> None:
        async with serving(sequence("helper", SLOW, "next")) as served:
            await leave_early(served, run_input("t", "r", "x"))
            process = await until_idle(served)
            assert process.messages == ()
            assert text_of(await run(served.ada, run_input("t", "r2", "y"), "helper")) == "next"

    in_loop(main())


def test_a_message_right_after_a_stop_is_answered() -> None:
    """What was stopped shows in no later run, also where the next message comes at once; nothing of it is kept."""

    async def main() -> None:
        async with serving(sequence("helper", SLOW, "next")) as served:
            await leave_early(served, run_input("t", "r", "x"))
            events = await run(served.ada, run_input("t", "r2", "y"), "helper")
            assert [row["content"] for row in last_messages(events) if row["role"] == "user"] == ["y"]
            assert events[-1].outcome.type == "success"
            threads = served.face.app.parts.get_shared(AguiThreads)
            assert not threads._turns

    in_loop(main())


def test_a_turn_goes_on_without_its_client_where_the_request_says_so() -> None:
    """With onDisconnect `detach` the answer is finished; a run that sends the same conversation reads it on."""
    detach = {"lyra": {"onDisconnect": "detach"}}

    async def main() -> None:
        async with serving(sequence("helper", SLOW)) as served:
            given = run_input("t", "r", "x", forwardedProps=detach)
            await leave_early(served, given)
            again = await run(served.ada, {**given, "runId": "r2"}, "helper")
            told = last_messages(again)
            assert [row["content"] for row in told] == ["x", SLOW["text"]]
            assert text_of(again) == SLOW["text"]  # from its beginning, which the first client may not have got

    in_loop(main())


def test_a_thread_has_one_run_at_a_time() -> None:
    async def main() -> None:
        async with serving(sequence("helper", SLOW)) as served:
            first = asyncio.ensure_future(run(served.ada, run_input("t", "r1", "x"), "helper"))
            while not any(pid.startswith("agui-") for pid in served.kernel.processes):
                await asyncio.sleep(0.005)
            second = await served.ada.post("/agui/helper", json=run_input("t", "r2", "y"))
            assert second.status_code == 409
            assert text_of(await first) == SLOW["text"]

    in_loop(main())


def test_the_capabilities_name_the_agents_tools() -> None:
    async def main() -> None:
        async with serving(sequence("helper", "x", tools=[weather])) as served:
            told = (await served.ada.get("/agui/helper")).json()
            assert told["identity"]["name"] == "helper"
            assert [row["name"] for row in told["tools"]["items"]] == ["weather"]
            assert (await served.stranger.get("/agui/helper")).status_code == 401

    in_loop(main())


def test_an_operator_runs_for_the_user_that_it_names() -> None:
    async def main() -> None:
        async with serving(echo()) as served:
            await run(served.ada, run_input("t", "r", "mine"))
            for_ada = await served.operator.post("/agui/echo?user_id=ada", json=run_input("t", "r2"))
            assert [row["content"] for row in last_messages(events_of(for_ada.text))] == ["mine", "mine"]
            async with client(served.address, ADA) as again:
                assert (await again.post("/agui/echo?user_id=bob", json=run_input("t", "r2"))).status_code == 403

    in_loop(main())
