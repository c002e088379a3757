"""A turn that goes on without its client is read by another run: whole, or from where the front end has it."""

from __future__ import annotations

import asyncio
from typing import Any

from lyra import Agent, tool
from tests.server.http.support import Served, in_loop, serving
from tests.server.protocols.agui.support import events_of, kinds_of, last_messages, run_input, sequence, text_of

DETACH = {"lyra": {"onDisconnect": "detach"}}
WORDS = "one two three four five six"
QUESTION = {"id": "u0", "role": "user", "content": "x"}


@tool
async def weather() -> str:
    """The weather."""
    return "rain"


def helper() -> Agent[Any]:
    calls = {"tool_calls": [{"id": "c1", "name": "weather"}]}
    rules = {"allow": ["weather"]}
    return sequence("helper", calls, {"text": WORDS, "chunk_s": 0.1}, tools=[weather], permissions=rules)


async def leave_in_text(served: Served) -> None:
    """A run whose client leaves at the first piece of text, behind the tool call."""
    given = run_input("t", "r1", QUESTION, forwardedProps=DETACH)
    async with served.ada.stream("POST", "/agui/helper", json=given) as response:
        text = ""
        async for piece in response.aiter_text():
            text += piece
            if "TEXT_MESSAGE_CONTENT" in text:
                break


async def read_again(served: Served, *messages: Any) -> list[Any]:
    """The events of another run, once the server has noticed that the first client has left."""
    given = run_input("t", "r2", *messages, forwardedProps=DETACH)
    while (answer := await served.ada.post("/agui/helper", json=given)).status_code == 409:
        await asyncio.sleep(0.02)
    return events_of(answer.text)


def test_a_page_that_has_nothing_of_the_answer_reads_all_of_it() -> None:
    """The tool call and the text come again from the beginning, under the ids that the snapshot has."""

    async def main() -> None:
        for messages in ([QUESTION], []):
            async with serving(helper()) as served:
                await leave_in_text(served)
                again = await read_again(served, *messages)
                assert text_of(again) == WORDS
                assert kinds_of(again).count("TOOL_CALL_START") == kinds_of(again).count("TOOL_CALL_RESULT") == 1
                text_id = next(event.message_id for event in again if event.type == "TEXT_MESSAGE_START")
                told = last_messages(again)
                assert [row["role"] for row in told] == ["user", "assistant", "tool", "assistant"]
                assert told[-1]["id"] == text_id

    in_loop(main())


def test_a_page_that_has_a_part_of_the_answer_reads_on() -> None:
    """It sends that part as its last message, and gets what follows it."""

    async def main() -> None:
        async with serving(helper()) as served:
            await leave_in_text(served)
            again = await read_again(served, QUESTION, {"id": "a1", "role": "assistant", "content": "one "})
            assert WORDS.endswith(text_of(again))
            assert text_of(again) != WORDS
            assert last_messages(again)[-1]["content"] == WORDS

    in_loop(main())
