"""AG-UI on real models: the front end gets text, reasoning, calls and usage in the official types."""

from __future__ import annotations

from typing import Any

from lyra import Agent, tool
from tests.real_models import PIXEL, Answer, Call, FakeVendor, Vendor
from tests.server.http.support import in_loop, serving
from tests.server.protocols.agui.support import last_messages, run, run_input, text_of

CALL = Call("add", {"a": 2, "b": 3})


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_run_and_one_that_follows(vendor: Vendor, provider: FakeVendor) -> None:
    """Reasoning is told apart from the text, the usage is the vendor's, and the next run of the thread, which the front
    end sends with the whole conversation, has the signatures of the thoughts."""
    written = 100 if vendor.charges_cache_writes else 0
    provider.say(
        Answer(thinking="Sum.", calls=(CALL,), written_tokens=written),
        Answer("It is 5.", thinking="So."),
        Answer("Yes."),
    )
    agent: Agent[Any] = Agent("adder", model=vendor.model, tools=[add], thinking_tokens=2_000)
    parts = [
        {"type": "text", "text": "2 + 3?"},
        {"type": "image", "source": {"type": "data", "value": PIXEL, "mimeType": "image/png"}},
    ]
    asked = {"id": "u0", "role": "user", "content": parts}

    async def main() -> None:
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t1", "r1", asked), "adder")
            assert text_of(events) == "It is 5."
            thoughts = [event.delta for event in events if event.type == "REASONING_MESSAGE_CONTENT"]
            assert thoughts == (["Sum.", "So."] if vendor.thinks_aloud else [])
            usage = events[-1].usage[0]
            assert (usage.input_tokens, usage.output_tokens) == (2_000, 400)
            messages = [*last_messages(events), {"id": "u1", "role": "user", "content": "Sure?"}]
            again = await run(served.ada, run_input("t1", "r2", *messages), "adder")
            assert text_of(again) == "Yes."

    in_loop(main())
    signatures = [answer.signature for answer in provider.answered[:2]] if vendor.thinks_aloud else []
    assert [request.signatures for request in provider.requests] == [[], signatures[:1], signatures]
    assert [request.images for request in provider.requests] == [[("image/png", PIXEL)]] * 3
    assert provider.requests[-1].results == ["5"]


def test_a_cut_answer_is_told(vendor: Vendor, provider: FakeVendor) -> None:
    """By an event of its own before the end of the run."""
    provider.say(Answer("Once upon", is_cut=True), Answer("The end."))
    asked = {"id": "u0", "role": "user", "content": "A story"}

    async def main() -> None:
        async with serving(Agent("teller", model=vendor.model)) as served:
            events = await run(served.ada, run_input("t1", "r1", asked), "teller")
            assert text_of(events) == "Once upon"
            cuts = [event.value for event in events if event.type == "CUSTOM" and event.name == "lyra.cut_off"]
            assert cuts == [{"status": "max_tokens"}]
            whole = await run(served.ada, run_input("t2", "r2", asked), "teller")
            assert [event for event in whole if event.type == "CUSTOM"] == []

    in_loop(main())
