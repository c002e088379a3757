"""HTTP chat on real models, and vendors' clients that talk to an agent: figures, thoughts, pictures and calls."""

from __future__ import annotations

from typing import Any

import anthropic
import openai

from lyra import Agent, tool
from tests.real_models import PIXEL, Answer, Call, FakeVendor, Vendor
from tests.server.http.support import ADA, Served, events_of, in_loop, serving, text_of

CALL = Call("add", {"a": 2, "b": 3})


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def adder(model: str) -> Agent[Any]:
    return Agent("adder", model=model, tools=[add], thinking_tokens=2_000)


def test_a_chat(vendor: Vendor, provider: FakeVendor) -> None:
    """The answer, its tokens and its dollars; the next message goes on with the signatures of the thoughts. What the
    session is listed with is what both turns cost."""
    written = 100 if vendor.charges_cache_writes else 0
    answers = (Answer(thinking="Sum.", calls=(CALL,), written_tokens=written), Answer("It is 5."), Answer("Yes."))
    provider.say(*answers)

    async def main() -> None:
        async with serving(adder(vendor.model)) as served:
            chat = "/api/agents/adder/chat"
            first = (await served.ada.post(chat, json={"message": "2 + 3?"})).json()
            assert first["text"] == "It is 5."
            assert (first["usage"]["input_tokens"], first["usage"]["output_tokens"]) == (2_000, 400)
            assert first["usage"]["cost_usd"] == vendor.cost_usd(*answers[:2])
            again = {"message": "Sure?", "session_id": first["session_id"]}
            second = (await served.ada.post(chat, json=again)).json()
            assert (second["text"], second["usage"]["cost_usd"]) == ("Yes.", vendor.cost_usd(answers[2]))
            await _check_listed(served, vendor.cost_usd(*answers))

    in_loop(main())
    signatures = [answers[0].signature] if vendor.thinks_aloud else []
    assert [request.signatures for request in provider.requests] == [[], signatures, signatures]
    assert provider.requests[-1].results == ["5"]


async def _check_listed(served: Served, cost_usd: float) -> None:
    (session,) = (await served.ada.get("/api/sessions")).json()["sessions"]
    assert session["cost_usd"] == cost_usd


def test_a_stream(vendor: Vendor, provider: FakeVendor) -> None:
    """Thoughts, calls and usage are events of their own."""
    answers = (Answer(thinking="Sum.", calls=(CALL,)), Answer("It is 5."))
    provider.say(*answers)

    async def main() -> None:
        async with serving(adder(vendor.model)) as served:
            said = await served.ada.post("/api/agents/adder/chat/stream", json={"message": "2 + 3?"})
        events = events_of(said.text)
        assert text_of(events) == "It is 5."
        thoughts = [event.data["delta"] for event in events if event.word == "thinking_delta"]
        assert thoughts == (["Sum."] if vendor.thinks_aloud else [])
        (started,) = [event.data for event in events if event.word == "tool_start"]
        assert started["arguments"] == CALL.arguments
        usage = [event.data for event in events if event.word == "usage"]
        assert [row["input_tokens"] for row in usage] == [1_000, 1_000]
        assert [row["cache_read_tokens"] for row in usage] == [600, 600]
        assert [row["cost_usd"] for row in usage] == [vendor.cost_usd(answer) for answer in answers]

    in_loop(main())


def test_a_model_without_a_published_price(vendor: Vendor, provider: FakeVendor) -> None:
    """Its answer is given, and its cost is null, never 0."""
    provider.say(Answer("Hello."))
    unknown = f"{vendor.model.partition('/')[0]}/nova-of-tomorrow"

    async def main() -> None:
        async with serving(Agent("adder", model=unknown)) as served:
            answer = (await served.ada.post("/api/agents/adder/chat", json={"message": "Hi"})).json()
            assert answer["text"] == "Hello."
            assert answer["usage"]["cost_usd"] is None

    in_loop(main())


def test_clients_of_vendors_talk_to_an_agent(vendor: Vendor, provider: FakeVendor) -> None:
    """OpenAI's and Anthropic's own clients get the answer with its tokens, and their pictures reach the model."""
    provider.say(Answer("A dot.", thinking="Tiny."))
    url = f"data:image/png;base64,{PIXEL}"
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}

    async def main() -> None:
        async with serving(adder(vendor.model)) as served:
            async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=ADA, max_retries=0) as client:
                parts: Any = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url}}]
                said = await client.chat.completions.create(
                    model="adder", messages=[{"role": "user", "content": parts}]
                )
                assert said.choices[0].message.content == "A dot."
                assert said.usage is not None
                assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (1_000, 200)
            async with anthropic.AsyncAnthropic(base_url=served.url, api_key=ADA, max_retries=0) as other:
                blocks: Any = [{"type": "text", "text": "What?"}, {"type": "image", "source": source}]
                message = await other.messages.create(
                    model="adder", max_tokens=500, messages=[{"role": "user", "content": blocks}]
                )
                assert [block.text for block in message.content if block.type == "text"] == ["A dot."]
                assert (message.usage.input_tokens, message.usage.output_tokens) == (1_000, 200)

    in_loop(main())
    assert [request.images for request in provider.requests] == [[("image/png", PIXEL)]] * 2


def test_a_cut_answer_is_told(vendor: Vendor, provider: FakeVendor) -> None:
    """By the status of the answer and of its stream, and in the words of OpenAI's and Anthropic's clients."""
    provider.say(Answer("Once upon", is_cut=True))
    asked: Any = [{"role": "user", "content": "A story"}]

    async def main() -> None:
        async with serving(adder(vendor.model)) as served:
            chat = "/api/agents/adder/chat"
            whole = (await served.ada.post(chat, json={"message": "A story"})).json()
            assert (whole["text"], whole["status"]) == ("Once upon", "max_tokens")
            events = events_of((await served.ada.post(f"{chat}/stream", json={"message": "A story"})).text)
            assert (events[-1].word, events[-1].data["status"]) == ("result", "max_tokens")
            async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=ADA, max_retries=0) as client:
                said = await client.chat.completions.create(model="adder", messages=asked)
                assert said.choices[0].finish_reason == "length"
                pieces = await client.chat.completions.create(model="adder", messages=asked, stream=True)
                assert [piece.choices[0].finish_reason async for piece in pieces][-1] == "length"
            async with anthropic.AsyncAnthropic(base_url=served.url, api_key=ADA, max_retries=0) as other:
                message = await other.messages.create(model="adder", max_tokens=500, messages=asked)
                assert message.stop_reason == "max_tokens"
                async with other.messages.stream(model="adder", max_tokens=500, messages=asked) as stream:
                    assert (await stream.get_final_message()).stop_reason == "max_tokens"

    in_loop(main())
