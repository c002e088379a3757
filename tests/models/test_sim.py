"""The simulated model: what it says, when, and how."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError, ModelError
from lyra.models.pricing import FREE
from lyra.models.provider import Request
from lyra.models.script import Reply, Script, ScriptedCall, ScriptedError
from lyra.models.sim import SCRIPT_VARIABLE, SimProvider
from lyra.models.stream import Completion, Fold, Started, StreamEvent, TextDelta, ThinkingDelta, ToolDelta, ToolEnd
from lyra.models.wire.faults import KINDS
from lyra.testing import SimClock, run_in_virtual_time


def ask(*texts: str | Message, model: str = "script", **settings) -> Request:
    messages = tuple(text if isinstance(text, Message) else Message("user", text) for text in texts)
    return Request(model, messages, **settings)


def result(name: str, output: object) -> Message:
    return Message("tool", tool_results=(ToolResult("c1", name, output),))


def say(provider: SimProvider, request: Request) -> Completion:
    return asyncio.run(provider.complete(request))


def texts(script, *requests: Request) -> list[str]:
    provider = SimProvider(script)
    return [say(provider, request).text for request in requests]


async def collect(provider: SimProvider, request: Request) -> tuple[list[StreamEvent], ModelError | None]:
    events: list[StreamEvent] = []
    try:
        async for event in provider.stream(request):
            events += [event]
    except ModelError as error:
        return events, error
    return events, None


# ---------------------------------------------------------------- echo
def test_echo_answers_with_the_last_user_text_in_words():
    """`sim/echo` says what the user said last, a word at a time, and counts tokens."""
    request = ask("first", Message("assistant", "x"), "hello there  world", model="echo")
    events, error = asyncio.run(collect(SimProvider(), request))
    assert error is None
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["hello ", "there  ", "world"]
    whole = say(SimProvider(), request)
    assert (whole.text, whole.stop_reason) == ("hello there  world", "end")
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (6, 5)
    assert SimProvider().price("echo") == FREE


@given(st.text(max_size=300))
def test_echo_gives_back_any_text(text):
    """Whatever the user said comes back, character for character."""
    assert say(SimProvider(), ask(text, model="echo")).text == text


@given(st.text(max_size=200), st.integers(0, 40))
def test_no_answer_is_longer_than_max_tokens(text, most):
    """`max_tokens` cuts the text, and the count that is reported never passes it."""
    whole = say(SimProvider(), ask(text, model="echo", max_tokens=most))
    assert whole.usage.output_tokens <= most
    assert text.startswith(whole.text)
    assert (whole.stop_reason == "max_tokens") == (whole.text != text)


def test_a_stop_text_ends_the_answer():
    """The answer ends before the first of the stop texts."""
    whole = say(SimProvider(), ask("one two three", model="echo", stop=("three", "two")))
    assert (whole.text, whole.stop_reason) == ("one ", "stop_sequence")


# ---------------------------------------------------------------- which reply
def test_replies_are_chosen_by_what_the_user_said():
    """A regular expression, a part of the text, else the reply without conditions; groups fill the templates."""
    script = {
        "replies": [
            {"user": r"weather in (?P<city>\w+)", "text": "{1}: sunny. {city} {0} {unknown} {user}"},
            {"contains": "a.b", "text": "literal"},
            "what?",
        ]
    }
    asked = "the weather in Bern today"
    assert texts(script, ask(asked), ask("x a.b y"), ask("axb")) == [
        f"Bern: sunny. Bern weather in Bern {{unknown}} {asked}",
        "literal",
        "what?",
    ]


def test_replies_are_chosen_by_tool_results():
    """By the tool's name and by what it said; a reply to the user's text is not chosen by the result again."""
    script = {
        "replies": [
            {"user": "weather", "tool_calls": [{"name": "weather", "arguments": {"city": "{user}"}}]},
            {"tool": "weather", "result": r"(\d+) degrees", "text": "It has {1}. You asked: {user}"},
            {"tool": "weather", "text": "It is {result}."},
            {"result": "boom", "text": "That failed."},
        ]
    }
    first = ask("weather?")
    called = say(SimProvider(script), first)
    assert called.stop_reason == "tool_calls"
    (call,) = called.tool_calls
    assert (call.name, call.arguments, call.id) == ("weather", {"city": "weather?"}, "call_1_0")

    def after(name, output):
        return ask(*first.messages, called.message, result(name, output))

    assert texts(script, after("weather", "12 degrees"), after("weather", "foggy"), after("other", {"e": "boom"})) == [
        "It has 12. You asked: weather?",
        "It is foggy.",
        "That failed.",
    ]


def test_replies_are_chosen_by_turn_system_and_model():
    """`turn` counts the answers of the conversation; `system` and `model` tell agents apart."""
    script = {
        "replies": [
            {"turn": 2, "text": "second {turn}"},
            {"system": "pirate", "text": "arr"},
            {"model": "script:other", "text": "never"},
            "else",
        ]
    }
    again = ask("a", Message("assistant", "b"), "c")
    assert texts(script, again, ask("a", system="a pirate"), ask("a")) == ["second 2", "arr", "else"]


def test_a_sequence_gives_each_reply_once():
    """The first call gets the first reply; after the last there is an error that says so."""
    provider = SimProvider(["one", {"text": "two"}, Reply("three")])
    assert [say(provider, ask("x")).text for _ in range(3)] == ["one", "two", "three"]
    with pytest.raises(ModelError, match=r"no reply of the script fits turn 1, after user said 'x'") as raised:
        say(provider, ask("x"))
    assert raised.value.kind == "bad_request"
    assert raised.value.hint


def test_times_limits_a_reply():
    """`times: 2` answers twice, then the next reply that fits does."""
    assert texts({"replies": [{"text": "a", "times": 2}, "b"]}, *[ask("x")] * 4) == ["a", "a", "b", "b"]


def test_random_replies_follow_from_the_seed():
    """The same seed gives the same choices call by call; over many calls all are chosen."""
    words = ["red", "green", "blue"]

    def play(seed):
        return texts({"seed": seed, "replies": [{"one_of": words}]}, *[ask("x")] * 60)

    assert play(1) == play(1)
    assert play(1) != play(2)
    assert set(Counter(play(1))) == set(words)


def test_a_function_will_do_for_a_script():
    """It gets the Request and gives a text, a Reply or a mapping; what it raises is raised."""
    given = iter(["text", Reply("reply", stop_reason="pause"), {"text": "{user}!"}])
    provider = SimProvider(lambda request: next(given))
    answers = [say(provider, ask("hi")) for _ in range(3)]
    assert [answer.text for answer in answers] == ["text", "reply", "hi!"]
    assert answers[1].stop_reason == "pause"

    def fails(request):
        raise ModelError("no", kind="auth")

    with pytest.raises(ModelError, match="no"):
        say(SimProvider(fails), ask("hi"))


# ---------------------------------------------------------------- how it is said
@pytest.mark.parametrize(
    ("chunks", "expected"),
    [("word", ["ab ", "cdef"]), ("whole", ["ab cdef"]), (3, ["ab ", "cde", "f"])],
)
def test_chunking(chunks, expected):
    """By word, whole, or by a number of characters; a reply's own way before the script's."""
    for script in (
        {"chunks": chunks, "replies": ["ab cdef"]},
        {"chunks": 1, "replies": [{"text": "ab cdef", "chunks": chunks}]},
    ):
        events, _ = asyncio.run(collect(SimProvider(script), ask("x")))
        assert [event.text for event in events if isinstance(event, TextDelta)] == expected


def test_thinking_and_several_calls():
    """Thoughts come first, then text, then the calls, each whole; ids differ."""
    reply = Reply(
        "let me look",
        thinking="hmm well",
        tool_calls=(ScriptedCall("a", {"n": [1, "{user}"]}), ScriptedCall("b", id="mine")),
    )
    events, _ = asyncio.run(collect(SimProvider(Script(replies=(reply,))), ask("q")))
    assert isinstance(events[0], Started)
    assert [event.text for event in events if isinstance(event, ThinkingDelta)] == ["hmm ", "well"]
    fold = Fold()
    for event in events:
        fold.feed(event)
    whole = fold.completion()
    assert whole.tool_calls == (ToolCall("call_1_0", "a", {"n": [1, "q"]}), ToolCall("mine", "b"))
    assert whole.text == "let me look"
    assert whole.stop_reason == "tool_calls"


def test_calls_that_do_not_fit_max_tokens_are_not_made():
    """A call that would be cut is left out: half a call is never told."""
    script = {"replies": [{"text": "ok", "tool_calls": [{"name": "a", "arguments": {"x": "y" * 100}}]}]}
    whole = say(SimProvider(script), ask("q", max_tokens=10))
    assert (whole.tool_calls, whole.stop_reason, whole.usage.output_tokens) == ((), "max_tokens", 10)


def test_an_answer_that_is_cut_ends_within_its_last_call():
    """With the stop reason `max_tokens` half of the last call's arguments come, and no end of it."""
    calls = (ScriptedCall("a", {"n": 1}), ScriptedCall("b", {"text": "x" * 40}))
    reply = Reply(tool_calls=calls, stop_reason="max_tokens")
    events, _ = asyncio.run(collect(SimProvider(Script(replies=(reply,))), ask("q")))
    ends = [event.call.name for event in events if isinstance(event, ToolEnd)]
    sent = "".join(event.text for event in events if isinstance(event, ToolDelta) and event.index == 1)
    assert (ends, sent) == (["a"], '{"text":"xxxxxxxxxxxxxxxx')


def test_latency_is_the_loops_time():
    """Pauses before the first piece and between pieces pass on a simulated loop without waiting."""
    script = {"first_s": 100, "replies": [{"text": "a b c", "chunk_s": 10}]}
    clock = SimClock()

    async def main():
        begin = clock.monotonic()
        events = SimProvider(script).stream(ask("x"))
        return [clock.monotonic() - begin async for event in events if isinstance(event, TextDelta)]

    assert run_in_virtual_time(main(), clock=clock) == [100, 110, 120]


def test_usage_is_given_or_estimated():
    """What the script counts is what is told; the rest is estimated."""
    script = {"replies": [{"turn": 1, "text": "abcd", "usage": {"output_tokens": 999, "cache_read_tokens": 7}}, "b"]}
    usage = say(SimProvider(script), ask("x" * 40)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (10, 999, 7)
    tool = Tool("a", "d" * 100)
    assert say(SimProvider(script), ask("x" * 40, tools=(tool,))).usage.input_tokens > 30


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_error_can_be_played(kind):
    """Before the first event, with its kind, its sentence and the pause it asks for."""
    script = {"replies": [{"error": {"kind": kind, "retry_after_s": 2, "message": "so it goes"}}]}
    events, error = asyncio.run(collect(SimProvider(script), ask("x")))
    assert events == []
    assert (error.kind, error.retry_after_s, error.message) == (kind, 2, "so it goes")


def test_an_error_in_the_middle_of_the_stream():
    """`after_chunks` pieces are sent, then it breaks: no usage, no end."""
    script = {"replies": [{"text": "a b c", "error": {"kind": "stream_truncated", "after_chunks": 2}}]}
    events, error = asyncio.run(collect(SimProvider(script), ask("x")))
    assert [type(event) for event in events] == [Started, TextDelta, TextDelta]
    assert error.kind == "stream_truncated"


def test_errors_that_end_after_some_attempts():
    """Each request fails so often, by itself, and is then answered."""
    script = Script(replies=(Reply("fine", error=ScriptedError("overloaded", attempts=2)),))
    provider = SimProvider(script)

    def outcomes(text):
        return [
            "fine" if error is None else error.kind
            for _, error in (asyncio.run(collect(provider, ask(text))) for _ in range(3))
        ]

    assert outcomes("one") == ["overloaded", "overloaded", "fine"]
    assert outcomes("two") == ["overloaded", "overloaded", "fine"]


def test_an_error_that_passes_does_not_use_a_reply_up():
    """In a sequence the try after the error gets the reply it was an error of, not the next."""
    provider = SimProvider(
        [{"text": "one", "error": {"kind": "timeout", "attempts": 1}}, "two", {"error": {"kind": "auth"}}]
    )
    outcomes = []
    for text in ("a", "a", "b", "c"):
        events, error = asyncio.run(collect(provider, ask(text)))
        outcomes.append(
            error.kind if error else "".join(event.text for event in events if isinstance(event, TextDelta))
        )
    assert outcomes == ["timeout", "one", "two", "auth"]


# ---------------------------------------------------------------- where scripts come from
def test_a_script_comes_from_a_file_by_name_or_by_variable(tmp_path, monkeypatch):
    """`script:PATH`, or `LYRA_SIM_SCRIPT`; without either the error says both."""
    file = tmp_path / "s.yaml"
    file.write_text("replies: [hello]\n")
    assert say(SimProvider(), ask("x", model=f"script:{file}")).text == "hello"
    monkeypatch.delenv(SCRIPT_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="has no script") as raised:
        say(SimProvider(), ask("x"))
    assert SCRIPT_VARIABLE in str(raised.value.hint)
    monkeypatch.setenv(SCRIPT_VARIABLE, str(file))
    assert say(SimProvider(), ask("x")).text == "hello"


def test_an_unknown_sim_model_is_refused():
    """The error names the models there are."""
    with pytest.raises(ConfigError, match="no model 'sim/eco'") as raised:
        say(SimProvider(), ask("x", model="eco"))
    assert "echo" in str(raised.value.hint)


def test_a_script_may_have_a_price():
    """Free unless it says otherwise, so that money budgets can be tried; unknown where it says so."""
    priced = SimProvider({"replies": ["x"], "price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": "0.1"}})
    assert priced.price("script").worst_case(1_000_000, 1_000_000) == 3_100_000
    assert SimProvider({"replies": ["x"]}).price("script") == FREE
    assert SimProvider({"replies": ["x"], "price": "unknown"}).price("script") is None
