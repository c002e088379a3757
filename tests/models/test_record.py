"""Record and replay: the same answers, no network, no keys."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lyra.core.message import Message
from lyra.core.secrets.secret import Secret
from lyra.core.tool import Tool
from lyra.errors import ConfigError, ModelError, ParseError
from lyra.models.client import LLMClient
from lyra.models.provider import LLMProvider, Request
from lyra.models.record import Cassette, Recorder, Replayer
from lyra.models.script import Reply, Script, ScriptedCall, ScriptedError
from lyra.models.sim import SimProvider
from lyra.models.stream import Finished, Started, TextDelta, ThinkingDelta, ToolEnd
from lyra.testing import SimClock, record, run_in_virtual_time

KEY = "sk-ant-planted-0123456789abcdef"


def ask(text: str, **settings) -> Request:
    return Request(settings.pop("model", "script"), (Message("user", text),), **settings)


class Keyed(SimProvider):
    """A simulated model with a key, which its server repeats."""

    def secrets(self) -> tuple[str, ...]:
        return ("planted-secret", KEY)


async def events(provider: LLMProvider, request: Request) -> list[Any]:
    seen: list[Any] = []
    try:
        async for event in provider.stream(request):
            seen += [event]
    except ModelError as error:
        seen += [(error.kind, error.message, error.fields)]
    return seen


def play(provider: LLMProvider, *requests: Request) -> list[list[Any]]:
    async def main():
        return [await events(provider, request) for request in requests]

    return asyncio.run(main())


SCRIPT = Script(
    replies=(
        Reply("hello {user}", contains="hi", thinking="hm"),
        Reply("calling", contains="call", tool_calls=(ScriptedCall("a", {"x": 1}), ScriptedCall("b"))),
        Reply("broken off here", contains="cut", error=ScriptedError("stream_truncated", after_chunks=2)),
        Reply(contains="fail", error=ScriptedError("rate_limit", retry_after_s=2.5)),
    )
)
REQUESTS = tuple(ask(text) for text in ("hi there", "call it", "cut it", "fail please"))


def test_a_replay_gives_the_same_events_and_errors(tmp_path):
    """Text, thoughts, calls, usage, broken streams and refusals: everything as it was."""
    file = tmp_path / "c.jsonl"
    recorded = play(Recorder(SimProvider(SCRIPT), file), *REQUESTS)
    replayer = Replayer(file)
    assert play(replayer, *reversed(REQUESTS)) == list(reversed(recorded))
    assert recorded[3][0][2]["retry_after_s"] == 2.5


def test_a_cassette_is_json_lines(tmp_path):
    """A line for what it is, one for each call, with the request in a form to read."""
    file = tmp_path / "c.jsonl"
    tool = Tool("look", "Looks.", {"type": "object", "properties": {}}, run=print)
    play(Recorder(SimProvider(SCRIPT), file), ask("hi you", system="be kind", tools=(tool,), max_tokens=50))
    first, entry = (json.loads(line) for line in file.read_text().splitlines())
    assert first == {"lyra_cassette": 1}
    assert entry["provider"] == "sim"
    assert entry["request"] == {
        "model": "script",
        "system": "be kind",
        "tools": [{"name": "look", "description": "Looks.", "schema": tool.schema}],
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "hi you"}],
    }
    assert next(name for _, name, _ in entry["events"]) == "Started"


def test_no_key_gets_into_a_cassette(tmp_path):
    """Not from the request, the answer (also in pieces), tool calls, thoughts or errors; and it still replays."""
    file = tmp_path / "c.jsonl"
    script = Script(
        chunks=3,
        replies=(
            Reply(
                f"your key is {KEY} and planted-secret",
                contains="hi",
                thinking=f"hm planted-secret {KEY}",
                tool_calls=(ScriptedCall("a", {"k": KEY, "password": "abc"}),),
            ),
            Reply(error=ScriptedError("auth", f"wrong key {KEY}, more-secret")),
        ),
    )
    recorder = Recorder(Keyed(script), file, secrets=lambda: (Secret("more-secret"),))
    requests = (ask(f"hi {KEY} more-secret"), ask("x", system=f"Authorization: Bearer {KEY}"))
    shown = play(recorder, *requests)
    assert KEY in "".join(event.text for event in shown[0] if isinstance(event, TextDelta))
    text = file.read_text()
    for secret in (KEY, "planted-secret", "more-secret", "planted", "0123456789abcdef"):
        assert secret not in text
    replayed = play(Replayer(file, secrets=lambda: ("planted-secret", KEY, "more-secret")), *requests)
    assert "".join(event.text for event in replayed[0] if isinstance(event, TextDelta)) == "your key is *** and ***"
    assert replayed[1][0][:2] == ("auth", "wrong key ***, ***")


def test_the_same_request_again_gets_the_next_answer(tmp_path):
    """A refusal and the answer that came after it are replayed in that order; the last one stays."""
    file = tmp_path / "c.jsonl"
    script = {"replies": [{"text": "fine", "error": {"kind": "overloaded", "attempts": 1}}]}
    play(Recorder(SimProvider(script), file), ask("x"), ask("x"))
    first, second, third = play(Replayer(file), ask("x"), ask("x"), ask("x"))
    assert first[0][0] == "overloaded"
    assert TextDelta("fine") in second
    assert third == second


@pytest.mark.parametrize(
    ("request_", "difference"),
    [
        (ask("hi thera"), "messages[0].content is 'hi there', here 'hi thera'"),
        (ask("hi there", system="new"), "system is None, here 'new'"),
        (ask("hi there", max_tokens=3), "max_tokens is None, here 3"),
        (
            Request("script", (Message("user", "hi there"), Message("assistant", "x"))),
            "messages has 1 items, here 2",
        ),
    ],
)
def test_an_unknown_request_says_what_is_different(tmp_path, request_, difference):
    """From the nearest one that was recorded, with what to do."""
    file = tmp_path / "c.jsonl"
    play(Recorder(SimProvider(SCRIPT), file), ask("call it"), ask("hi there"))
    with pytest.raises(ModelError) as raised:
        asyncio.run(Replayer(file).complete(request_))
    assert "was not recorded" in raised.value.message
    assert f"call 2 of {file} is the nearest; there {difference}" in raised.value.message
    assert "LYRA_RECORD=new" in str(raised.value.hint)
    assert raised.value.kind == "bad_request"


def test_in_order_means_in_order(tmp_path):
    """The requests have to come as they came, no fewer in between and no more at the end."""
    file = tmp_path / "c.jsonl"
    play(Recorder(SimProvider(SCRIPT), file), *REQUESTS[:2])
    assert [events_[0] for events_ in play(Replayer(file, in_order=True), *REQUESTS[:2])]
    swapped = play(Replayer(file, in_order=True), REQUESTS[1])
    assert "messages[0].content is 'hi there', here 'call it'" in swapped[0][0][1]
    more = play(Replayer(file, in_order=True), *REQUESTS[:2], REQUESTS[0])
    assert "has no more requests" in more[2][0][1]


def test_what_answers_by_order_says_so(tmp_path):
    """Requests must not be sent ahead of their turn if they are replayed in order, or if one has several answers."""
    file = tmp_path / "c.jsonl"
    by_order, by_question = {"sequence": ["a", "b"]}, {"replies": ["a"]}
    assert Recorder(SimProvider(by_order), file).answers_in_order("script")
    assert not Recorder(SimProvider(by_question), file).answers_in_order("script")
    play(Recorder(SimProvider(by_order), file), REQUESTS[0], REQUESTS[1])
    assert Replayer(file, in_order=True).answers_in_order("script")
    assert not Replayer(file).answers_in_order("script")
    assert Replayer(file, otherwise=SimProvider(by_order)).answers_in_order("script")
    play(Recorder(SimProvider(by_question), file), REQUESTS[0])
    replayer = Replayer(file)
    assert replayer.answers_in_order("script")
    play(replayer, REQUESTS[0])
    assert not replayer.answers_in_order("script"), "what is left it answers every time"


def test_an_idempotency_key_is_no_difference(tmp_path):
    """It is another one every time."""
    file = tmp_path / "c.jsonl"
    play(Recorder(SimProvider(SCRIPT), file), ask("hi", idempotency_key="a"))
    assert len(play(Replayer(file), ask("hi", idempotency_key="b"))[0]) > 2


def test_timings_are_kept_and_replayed(tmp_path):
    """The pauses of the recording, in the loop's time; none where they are not asked for."""
    file = tmp_path / "c.jsonl"
    script = {"first_s": 5, "chunk_s": 2, "replies": ["a b c"]}

    def took(provider):
        clock = SimClock()
        began = clock.monotonic()
        run_in_virtual_time(events(provider, ask("x")), clock=clock)
        return clock.monotonic() - began

    assert took(Recorder(SimProvider(script), file)) == pytest.approx(9)
    assert took(Replayer(file, timings=True)) == pytest.approx(9)
    assert took(Replayer(file)) == 0


def test_an_answer_left_early_is_not_recorded(tmp_path):
    """Half an answer would replay as one."""
    file = tmp_path / "c.jsonl"
    recorder = Recorder(SimProvider(SCRIPT), file)

    async def main():
        stream: Any = recorder.stream(ask("hi there"))
        await anext(stream)
        await stream.aclose()

    asyncio.run(main())
    assert Cassette.load(file).entries == []


def test_leaving_a_recorded_stream_leaves_the_real_one_at_once(tmp_path):
    """A connection is not kept open by the recorder in front of it."""
    closed = []

    class Watched(SimProvider):
        async def stream(self, request):
            try:
                async for event in super().stream(request):
                    yield event
            finally:
                closed.append(True)

    async def main():
        empty = Cassette(tmp_path / "none")
        for provider in (Recorder(Watched(SCRIPT), empty), Replayer(empty, otherwise=Watched(SCRIPT))):
            stream: Any = provider.stream(ask("hi there"))
            await anext(stream)
            await stream.aclose()
        return list(closed)

    assert asyncio.run(main()) == [True, True]


def test_what_is_no_cassette_is_refused_with_its_line(tmp_path):
    """Another file, a broken line, an unknown event, no file at all."""
    file = tmp_path / "c.jsonl"
    with pytest.raises(ConfigError, match="cannot be read"):
        Replayer(file)
    head = '{"lyra_cassette":1}\n'
    for text, line in (
        ("{}\n", 1),
        ("hello\n", 1),
        (head + "{\n", 2),
        (head + '{"provider":"a","hash":"b","request":{},"events":[[0,"Nope",{}]]}\n', 2),
        (head + '{"provider":"a","hash":"b","request":{},"events":[[0,"TextDelta",{"text":3}]]}\n', 2),
    ):
        file.write_text(text)
        with pytest.raises(ParseError) as raised:
            Replayer(file)
        assert raised.value.line == line


# ---------------------------------------------------------------- lyra.testing.record
def answers(client: LLMClient, *texts: str, name: str = "sim/script") -> list[str]:
    async def main():
        return [(await client.complete(name, ask(text))).text for text in texts]

    return asyncio.run(main())


def client_of(script) -> LLMClient:
    client = LLMClient(env={})
    client.register("sim", SimProvider(script))
    return client


def test_recorded_on_the_first_run_replayed_on_the_others(tmp_path, monkeypatch):
    """The second run needs neither the provider nor its key; afterwards the client is what it was."""
    monkeypatch.delenv("LYRA_RECORD", raising=False)
    file = tmp_path / "deep" / "c.jsonl"
    client = client_of(["one", "two"])
    with record(file, client):
        assert answers(client, "a", "b") == ["one", "two"]
    with record(file, client):
        assert answers(client, "b", "a") == ["two", "one"]
    client.register("sim", SimProvider(["live"]))
    assert answers(client, "a") == ["live"]


def test_a_replay_makes_no_provider(tmp_path, monkeypatch):
    """A client without a key replays what one with a key recorded."""
    monkeypatch.delenv("LYRA_RECORD", raising=False)
    file = tmp_path / "c.jsonl"
    recording = LLMClient(env={})
    recording.register("anthropic", SimProvider(lambda request: "from afar"))
    for client in (recording, LLMClient(env={})):
        with record(file, client):
            assert answers(client, "x", name="anthropic/script") == ["from afar"]


def test_the_modes(tmp_path, monkeypatch):
    """`replay` never records, `new` adds, `all` begins anew; the variable stands behind the argument."""
    file = tmp_path / "c.jsonl"
    with pytest.raises(ConfigError, match="cannot be read"), record(file, client_of([]), mode="replay"):
        pass
    monkeypatch.setenv("LYRA_RECORD", "all")
    with record(file, client := client_of(["one"])):
        assert answers(client, "a") == ["one"]
    with record(file, client := client_of(["new"]), mode="new"):
        assert answers(client, "a", "b") == ["one", "new"]
    with record(file, client := client_of(["never"]), mode="replay"):
        assert answers(client, "b", "a") == ["new", "one"]
        with pytest.raises(ModelError, match="was not recorded"):
            answers(client, "c")
    with record(file, client := client_of(["again"])):
        assert answers(client, "a") == ["again"]
    assert len(Cassette.load(file).entries) == 1
    monkeypatch.setenv("LYRA_RECORD", "al")
    with pytest.raises(ConfigError, match="LYRA_RECORD is one of") as raised, record(file, client_of([])):
        pass
    assert raised.value.hint == "did you mean 'all'?"


def test_a_block_that_fails_leaves_the_file_alone(tmp_path):
    """What a broken test recorded is not kept, and the client is given back."""
    file = tmp_path / "c.jsonl"
    client = client_of(["one", "two"])
    with pytest.raises(ZeroDivisionError), record(file, client, mode="all"):
        answers(client, "a")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    assert client.stand_in is None


def test_one_provider_can_be_recorded_too(tmp_path):
    """The `with` gives the one to use."""
    file = tmp_path / "c.jsonl"
    for script in (["one"], ["never"]):
        with record(file, SimProvider(script), mode="once") as provider:
            assert asyncio.run(provider.complete(ask("a"))).text == "one"


def test_keys_of_other_providers_are_blotted_out_too(tmp_path):
    """Every key the client holds, and those that the test names."""
    file = tmp_path / "c.jsonl"
    client = client_of([f"{'planted'}-secret and extra-secret"])
    client.register("keyed", Keyed())
    with record(file, client, mode="all", secrets=["extra-secret"]):
        answers(client, "x")
    assert "secret" not in file.read_text()


# ---------------------------------------------------------------- keys of a client that makes no call
@pytest.mark.parametrize("where", ["variable", "settings"])
def test_a_replay_knows_the_clients_keys_without_a_provider(tmp_path, where):
    """The second run of a test finds its recording though the prompt holds a key of no known form, and an error of
    the replay does not quote it."""
    file, key = tmp_path / "c.jsonl", "zq8-planted-KEY-no-form-11223344"

    def client() -> LLMClient:
        if where == "variable":
            return LLMClient(env={"OPENAI_API_KEY": key})
        return LLMClient({"openai": {"api_key": key}}, env={})

    async def play(mode: str, text: str) -> str:
        fresh = client()
        if mode == "all":
            fresh.register("openai", SimProvider(SCRIPT, every_model=True))
        with record(file, fresh, mode=mode):
            return (await fresh.complete("openai/x", ask(text))).text

    asyncio.run(play("all", f"hi {key}"))
    assert key not in file.read_text()
    assert asyncio.run(play("replay", f"hi {key}")) == "hello hi ***"
    with pytest.raises(ModelError) as caught:
        asyncio.run(play("replay", f"hi again {key}"))
    assert key not in f"{caught.value} {caught.value.render()} {caught.value.fields}"


def test_a_replay_of_one_provider_knows_its_keys(tmp_path):
    file = tmp_path / "c.jsonl"
    for mode in ("all", "replay"):
        with record(file, Keyed(SCRIPT), mode=mode) as provider:
            assert play(provider, ask("hi planted-secret"))[0]
    assert "planted-secret" not in file.read_text()


class Thinking(SimProvider):
    async def stream(self, request):
        yield Started()
        yield ThinkingDelta("I saw ")
        yield ThinkingDelta(KEY)
        yield ThinkingDelta("", "signed")
        yield Finished()


def test_a_thought_that_held_a_key_keeps_its_signature(tmp_path):
    file = tmp_path / "c.jsonl"
    play(Recorder(Thinking(), file), ask("x"))
    thoughts = [event for event in play(Replayer(file), ask("x"))[0] if isinstance(event, ThinkingDelta)]
    assert thoughts == [ThinkingDelta("I saw ***"), ThinkingDelta("", "signed")]


def test_a_call_is_replayed_with_the_arguments_it_had(tmp_path):
    """Whatever they are called; a key among them is blotted out."""
    arguments = {"password": "correct horse", "cookie": "oatmeal", "note": KEY}
    file = tmp_path / "c.jsonl"
    play(
        Recorder(SimProvider(Script(replies=(Reply("x", tool_calls=(ScriptedCall("a", arguments),)),))), file), ask("x")
    )
    calls = [event.call for event in play(Replayer(file), ask("x"))[0] if isinstance(event, ToolEnd)]
    assert [call.arguments for call in calls] == [{**arguments, "note": "***"}]


def test_a_recording_can_be_replayed_in_order_only(tmp_path):
    """`record(…, in_order=True)`: the same requests in another order are an error."""
    file = tmp_path / "c.jsonl"
    client = client_of(["one", "two"])
    with record(file, client, mode="once"):
        assert answers(client, "a", "b") == ["one", "two"]
    with record(file, client, mode="replay", in_order=True):
        assert answers(client, "a", "b") == ["one", "two"]
    with pytest.raises(ModelError), record(file, client, mode="replay", in_order=True):
        answers(client, "b", "a")


def test_a_recording_can_be_replayed_with_its_pauses(tmp_path):
    """`record(…, timings=True)` waits as the provider did."""
    file = tmp_path / "c.jsonl"

    def took(**options: Any) -> float:
        clock = SimClock()
        with record(file, SimProvider({"first_s": 5, "replies": ["a b c"]}), **options) as provider:
            run_in_virtual_time(events(provider, ask("x")), clock=clock)
        return clock.monotonic()

    assert took(mode="all") == pytest.approx(5)
    assert took(mode="replay", timings=True) == pytest.approx(5)
    assert took(mode="replay") == 0
