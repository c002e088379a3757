"""Ollama: one JSON object a line, read whole or not at all; the lines are those of its documentation."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.core.secrets.secret import Secret
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError, ModelError
from lyra.models.provider import Request
from lyra.models.providers.ollama import Ollama, OllamaReader, ollama_body
from lyra.models.settings import ProviderSettings, settings_of
from lyra.models.stream import (
    Completion,
    Finished,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolDelta,
    ToolEnd,
    ToolStart,
    UsageSeen,
)
from tests.cases import cases
from tests.models.server import Asked, Reply, Server, run
from tests.models.wires import fold, read, read_until

WEATHER = Tool(
    "get_current_weather",
    "Get the current weather for a location",
    {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
)
OTHER = Tool("other", "Something else")
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def line(content: str = "", *, done: bool = False, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    created = "2023-08-04T08:52:19.385406455-07:00"
    return {"model": "llama3.2", "created_at": created, "message": message, "done": done, **more}


def last(content: str = "", reason: str = "stop", **more: Any) -> dict[str, Any]:
    counts = {
        "total_duration": 4883583458,
        "load_duration": 1334875,
        "prompt_eval_count": 26,
        "prompt_eval_duration": 342546000,
        "eval_count": 282,
        "eval_duration": 4535599000,
    }
    return line(content, done=True, done_reason=reason, **counts, **more)


def lines(*objects: Any) -> bytes:
    return "".join(
        (item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)) + "\n" for item in objects
    ).encode()


def calls(*given: tuple[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"function": {"name": name, "arguments": arguments}} for name, arguments in given]}


SAID = lines(line("Der "), line("Himmel ist blåu"), last())
CALLED = lines(
    line(message={"thinking": "where "}),
    line(message={"thinking": "is it?"}),
    line("Let me look."),
    line(message=calls(("get_current_weather", {"location": "Paris, FR", "format": "celsius"}))),
    line(message=calls(("get_current_weather", {"location": "Röme"}), ("other", {}))),
    last(),
)
# The final object of older servers has no message, and none of them needs a reason.
OLD = lines(
    line("The"),
    {
        "model": "llama3.2",
        "created_at": "2023-08-04T19:22:45.499127Z",
        "done": True,
        "prompt_eval_count": 26,
        "eval_count": 2,
    },
)
STREAMS = {"said": SAID, "called": CALLED, "old": OLD, "cut": lines(line("as far"), last(" as", "length"))}


def events_of(data: bytes, cuts: Any = (), first: int = 0) -> list[StreamEvent]:
    return read(OllamaReader(first), data, cuts)


def asking(*messages: Message, **more: Any) -> Request:
    return Request(**{"model": "llama3.2", "messages": messages or (Message("user", "hello"),), **more})


async def completed(reply: Reply, request: Request | None = None, **more: Any) -> tuple[Completion, Asked]:
    async with Server(reply) as server:
        ours = Ollama(ProviderSettings("ollama", base_url=server.url, **more))
        try:
            return await ours.complete(request or asking()), server.requests[0]
        finally:
            await ours.close()


def failing(reply: Reply, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        run(completed(reply, **more))
    assert (caught.value.provider, caught.value.model) == ("ollama", "llama3.2")
    return caught.value


# ---------------------------------------------------------------- the answer
def test_an_answer_is_text_tokens_and_an_end():
    """Tokens come with the last line."""
    assert events_of(SAID) == [
        Started(model="llama3.2"),
        TextDelta("Der "),
        TextDelta("Himmel ist blåu"),
        UsageSeen(TokenUsage(26, 282)),
        Finished("end"),
    ]


def test_calls_get_ids_that_no_earlier_call_has():
    """The wire has none."""
    events = events_of(CALLED, first=2)
    assert [item.call for item in events if isinstance(item, ToolEnd)] == [
        ToolCall("call_2", "get_current_weather", {"location": "Paris, FR", "format": "celsius"}),
        ToolCall("call_3", "get_current_weather", {"location": "Röme"}),
        ToolCall("call_4", "other", {}),
    ]
    assert [item.index for item in events if isinstance(item, ToolStart)] == [0, 1, 2]
    assert [json.loads(item.text) for item in events if isinstance(item, ToolDelta)][1] == {"location": "Röme"}
    assert "".join(item.text for item in events if isinstance(item, ThinkingDelta)) == "where is it?"
    assert events[-1] == Finished("tool_calls")


def test_a_conversation_numbers_its_calls_on():
    """Over a real connection: the second turn's ids follow the first's."""
    turn = Message("assistant", "", (ToolCall("call_4", "other"), ToolCall("toolu_9", "other")))
    answer, _ = run(completed(Reply(CALLED), asking(Message("user", "x"), turn)))
    assert [call.id for call in answer.tool_calls] == ["call_5", "call_6", "call_7"]


def test_an_id_of_the_wire_is_kept():
    """Newer servers give one."""
    data = lines(line(message={"tool_calls": [{"id": "c9", "function": {"name": "other", "arguments": {}}}]}), last())
    assert fold(events_of(data)).tool_calls[0].id == "c9"


def test_older_servers_are_understood():
    """No message and no reason in the last line."""
    answer = fold(events_of(OLD))
    assert (answer.text, answer.stop_reason, answer.usage) == ("The", "end", TokenUsage(26, 2))


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=cases(40), deadline=None)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=12), crlf=st.booleans())
def test_any_split_of_the_bytes_gives_the_same_events(name, cuts, crlf):
    """Also inside a character; empty lines and either line end."""
    data = STREAMS[name]
    sent = data.replace(b"\n", b"\r\n\r\n") if crlf else data
    assert events_of(sent, cuts) == events_of(data)


def test_byte_by_byte_is_the_same():
    """The worst network there is."""
    for data in STREAMS.values():
        assert events_of(data, range(len(data))) == events_of(data)


def test_the_last_line_needs_no_end():
    """Some servers leave it out."""
    assert events_of(SAID.rstrip()) == events_of(SAID)


@pytest.mark.parametrize(("reason", "stop"), [("stop", "end"), ("length", "max_tokens"), ("unload", "end")])
def test_reasons_have_one_meaning(reason, stop):
    """A table; a reason that is not in it is an end."""
    assert events_of(lines(last("x", reason)))[-1] == Finished(stop)


# ---------------------------------------------------------------- what goes wrong
def test_no_beginning_of_an_answer_is_an_answer():
    """Whole lines, but not the last."""
    whole = CALLED.splitlines(keepends=True)
    for kept in range(len(whole)):
        with pytest.raises(ModelError) as caught:
            events_of(b"".join(whole[:kept]))
        assert caught.value.kind == "stream_truncated"


@pytest.mark.parametrize("bad", ['{"model": ', "[]", '{"message": 5}', '{"message": {"tool_calls": [5]}}'])
def test_a_line_that_cannot_be_read_is_an_error(bad):
    """Never skipped, even when the answer goes on well."""
    with pytest.raises(ModelError) as caught:
        events_of(lines(line("a"), bad, line("b"), last()))
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("arguments", ['{"location": "Par', [1], 5])
def test_arguments_that_are_no_object_are_never_dispatched(arguments):
    """The error names the tool."""
    data = lines(line(message=calls(("get_current_weather", arguments))), last())
    given = events_of(data)
    with pytest.raises(ModelError) as caught:
        fold(given)
    assert (caught.value.kind, caught.value.tool) == ("malformed", "get_current_weather")
    assert [item.call.arguments for item in given if isinstance(item, ToolEnd)] == [{}]


def test_lines_after_the_end_are_ignored():
    """And fields that are new are passed over."""
    data = lines({**last("x"), "logprobs": [1]}, line("more"), last())
    events = events_of(data)
    assert fold(events).text == "x"
    assert sum(isinstance(item, Finished) for item in events) == 1


def test_an_error_in_the_stream_is_an_error():
    """In Ollama's words."""
    error = failing(Reply(lines(line("well"), {"error": "an error was encountered while running the model"})))
    assert (error.kind, error.message) == ("temporary", "an error was encountered while running the model")


@pytest.mark.parametrize(
    ("status", "message", "kind", "hint"),
    [
        (404, 'model "llama3.2" not found, try pulling it first', "not_found", "ollama pull llama3.2"),
        (400, "registry.ollama.ai/library/llama3.2 does not support tools", "bad_request", None),
        (500, "llama runner process has terminated", "temporary", None),
        (503, "server busy, please try again.  maximum pending requests exceeded", "overloaded", None),
    ],
)
def test_refusals_have_a_kind(status, message, kind, hint):
    """And the command that helps, where there is one."""
    error = failing(Reply.json({"error": message}, status=status))
    assert (error.kind, error.status) == (kind, status)
    assert hint is None or hint in str(error.hint)


def test_a_server_that_is_not_there():
    """The hint says how to start it."""

    async def main() -> ModelError:
        async with Server(Reply()) as server:
            url = server.url
        ours = Ollama(ProviderSettings("ollama", base_url=url))
        with pytest.raises(ModelError) as caught:
            await ours.complete(asking())
        await ours.close()
        return caught.value

    error = run(main())
    assert error.kind == "connection"
    assert "ollama serve" in str(error.hint)


def test_a_broken_connection_and_a_web_page_are_named():
    """Neither is an answer."""
    assert failing(Reply(SAID[:150], cut=True)).kind == "stream_truncated"
    assert failing(Reply(b"<html>", headers={"content-type": "text/html"})).kind == "bad_response"


def test_leaving_closes_the_connection_at_once():
    """The server notices, and stops generating."""

    async def leave() -> None:
        async with Server(Reply(lines(line("one")), hang=True)) as server:
            ours = Ollama(ProviderSettings("ollama", base_url=server.url))
            stream: Any = ours.stream(asking())
            async with aclosing(stream) as events:
                async for item in events:
                    if isinstance(item, TextDelta):
                        break
            await asyncio.wait_for(server.hung_up.wait(), 0.5)
            await ours.close()

    run(leave())


# ---------------------------------------------------------------- the request
def test_a_whole_conversation_is_written():
    """System messages first, thoughts back, a failed tool says so in its text, every setting in its place."""
    request = asking(
        Message("user", "look"),
        Message(
            "assistant",
            ({"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "one moment"}),
            (ToolCall("call_0", "get_current_weather", {"location": "Ulm"}),),
        ),
        Message(
            "tool",
            tool_results=(
                ToolResult("call_0", "get_current_weather", {"sky": "grey"}),
                ToolResult("call_1", "other", "no", is_error=True),
            ),
        ),
        Message("system", "be brief"),
        system="you are a barometer",
        tools=(WEATHER, OTHER),
        max_tokens=100,
        temperature=0.5,
        top_p=0.9,
        stop=("END",),
        thinking_tokens=1000,
    )
    called = {"id": "call_0", "function": {"name": "get_current_weather", "arguments": {"location": "Ulm"}}}
    assert ollama_body(request) == {
        "model": "llama3.2",
        "messages": [
            {"role": "system", "content": "you are a barometer\n\nbe brief"},
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": "one moment", "thinking": "hm", "tool_calls": [called]},
            {
                "role": "tool",
                "tool_name": "get_current_weather",
                "tool_call_id": "call_0",
                "content": '{"sky":"grey"}',
            },
            {"role": "tool", "tool_name": "other", "tool_call_id": "call_1", "content": "error: no"},
        ],
        "stream": True,
        "tools": [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in (WEATHER, OTHER)
        ],
        "think": True,
        "options": {"num_predict": 100, "temperature": 0.5, "top_p": 0.9, "stop": ["END"]},
    }


@pytest.mark.parametrize(("choice", "offered"), [("auto", 2), ("any", 2), ("none", 0), ("other", 1)])
def test_the_choice_of_tools_is_what_is_offered(choice, offered):
    """The wire has no other word for it."""
    assert len(ollama_body(asking(tools=(WEATHER, OTHER), tool_choice=choice)).get("tools", ())) == offered


def test_a_wanted_form_is_a_format_or_words():
    """A format would keep the model from calling its tools."""
    assert ollama_body(asking(output_schema=SCHEMA))["format"] == SCHEMA
    body = ollama_body(asking(output_schema=SCHEMA, tools=(WEATHER,)))
    assert "format" not in body
    assert '"age"' in body["messages"][0]["content"]


def test_thinking_can_be_turned_off():
    """And is left to the model by default."""
    assert ollama_body(asking(thinking_tokens=0))["think"] is False
    assert "think" not in ollama_body(asking())


def test_images_are_sent_as_data():
    """Those of messages and of tools' results; a data: URL is data too."""
    image = {"type": "image", "media_type": "image/png", "data": "cG5n"}
    url = {"type": "image", "url": "data:image/gif;base64,Z2lm"}
    asked = Message("user", ({"type": "text", "text": "what is it?"}, image, url))
    seen = Message("tool", tool_results=(ToolResult("t", "look", [{"type": "text", "text": "see"}, image]),))
    user, tool = ollama_body(asking(asked, seen))["messages"]
    assert (user["content"], user["images"]) == ("what is it?", ["cG5n", "Z2lm"])
    assert (tool["content"], tool["images"]) == ("see", ["cG5n"])
    assert "images" not in ollama_body(asking())["messages"][-1]


def test_an_image_on_the_web_is_refused_before_anything_is_sent():
    """With what to do instead."""
    message = Message("user", ({"type": "image", "url": "https://example.com/a.png"},))
    with pytest.raises(ConfigError, match="not by their addresses"):
        run(completed(Reply(SAID), asking(message)))


def test_no_key_is_needed_and_one_is_sent_where_there_is_one():
    """For a server behind a gate."""
    _, asked = run(completed(Reply(SAID)))
    assert asked.path == "/api/chat"
    assert "authorization" not in asked.headers
    _, asked = run(completed(Reply(SAID), api_key=Secret("gate-key")))
    assert asked.headers["authorization"] == "Bearer gate-key"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("box", "http://box:11434"),
        ("box:8080", "http://box:8080"),
        ("http://box:8080/", "http://box:8080"),
        ("https://box.example", "https://box.example"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
    ],
)
def test_the_forms_of_ollama_host(host, url):
    """As the ollama command reads them."""
    settings = settings_of("ollama", env={"OLLAMA_HOST": host} if host else {})
    assert Ollama(settings).url(asking()) == f"{url}/api/chat"


@pytest.mark.parametrize(
    "body",
    [
        b"<html>\n<body>x</body></html>",
        b'data: {"choices": []}\n\n',
        b'{"id": "x", "object": "chat.completion", "choices": []}\n',
        b"hello",
    ],
)
def test_what_is_no_answer_of_ollama_is_told_as_such(body):
    """Asking again would not help; looking at the address may."""
    error = failing(Reply(body, headers={"content-type": "text/plain"}))
    assert (error.kind, error.hint) == ("bad_response", "is the base URL that of the provider's API?")


def test_an_error_may_be_an_object_and_counts_may_be_floats():
    _, error = read_until(OllamaReader(), lines({"error": {"code": "x", "message": "no room"}, "status": 503}))
    assert (error.kind, error.message) == ("overloaded", "no room")
    usage = fold(events_of(lines({**last("x"), "prompt_eval_count": 2.0, "eval_count": 3.0}))).usage
    assert usage == TokenUsage(2, 3)
