"""Real model names of three vendors, and a server that answers each in its own wire format: for tests of every face.

    def test_…(vendor: Vendor, provider: FakeVendor) -> None:
        provider.say(Answer(calls=(Call("add", {"a": 1}),)), Answer("Done.", thinking="Easy."))
        …                                                    # the face asks vendor.model
        assert provider.requests[1].results == ["1"]
        assert cost == vendor.cost_usd(*provider.answered)

The fixture `provider` is a running server whose address and key are in the vendor's usual environment variables.
Windows and prices are those that the vendors publish, written here by hand. OpenAI has two formats; `openai-responses`
is chosen by a settings file (`Vendor.settings`), which `provider` puts into the home folder of the test.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["PIXEL", "VENDORS", "Answer", "Call", "FakeVendor", "Sent", "Vendor", "write_settings"]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Call(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


class Answer(NamedTuple):
    """An answer of a model. `input_tokens` counts those read from and written to the cache, and `output_tokens` the
    thinking ones: each vendor's format says it in its own way."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    is_cut: bool = False  # at the limit of output tokens
    input_tokens: int = 1_000
    cached_tokens: int = 600
    written_tokens: int = 0  # to the cache; of the three Anthropic alone charges for it
    output_tokens: int = 200
    thinking_tokens: int = 50
    sources: tuple[tuple[str, str], ...] = ()  # (address, title) of pages that the vendor's own search found
    raw: str = ""  # JSON of the last call's arguments in place of them: cut, or broken
    status: int = 200  # another one is an error of the vendor's, with `text` as its message
    retry_after: str = ""
    delay_s: float = 0.0  # before the answer begins
    breaks_off: bool = False  # before its last events

    @property
    def arguments_text(self) -> tuple[str, ...]:
        """The arguments of the calls as JSON text."""
        texts = [json.dumps(arguments) for _, arguments in self.calls]
        return (*texts[:-1], self.raw) if self.raw else tuple(texts)

    @property
    def signature(self) -> str:
        """What the vendor signs a thought with: to be sent back unchanged."""
        return f"signed-{len(self.thinking)}-{len(self.calls)}=="


@dataclass
class Sent:
    """A request that the vendor got, read out of its format."""

    model: str
    body: dict[str, Any]
    system: str = ""
    texts: list[str] = field(default_factory=list)  # of the user
    images: list[tuple[str, str]] = field(default_factory=list)  # media type, base64
    said: list[str] = field(default_factory=list)  # by the model, in earlier turns
    signatures: list[str] = field(default_factory=list)  # of thoughts that are sent back
    calls: list[Call] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    asks_to_think: bool = False
    asks_to_search: bool = False  # by the vendor's own search


class Vendor(NamedTuple):
    """A model as its vendor publishes it: the context window in tokens, and dollars for a million tokens."""

    name: str
    model: str
    window: int
    input_usd: float
    output_usd: float
    cache_read_usd: float
    cache_write_usd: float
    variables: Callable[[str], dict[str, str]]
    settings: str = ""

    @property
    def bare_model(self) -> str:
        return self.model.partition("/")[2]

    @property
    def thinks_aloud(self) -> bool:
        """Whether its format can tell thoughts: OpenAI's chat completions cannot."""
        return self.name != "openai"

    @property
    def charges_cache_writes(self) -> bool:
        return self.cache_write_usd != self.input_usd

    def cost_usd(self, *answers: Answer) -> float:
        """What these answers cost, each rounded up to a whole micro-dollar."""
        return sum(ceil(round(self._micro_usd(answer), 6)) for answer in answers) / 1_000_000

    def _micro_usd(self, answer: Answer) -> float:
        plain = answer.input_tokens - answer.cached_tokens - answer.written_tokens
        return (
            plain * self.input_usd
            + answer.cached_tokens * self.cache_read_usd
            + answer.written_tokens * self.cache_write_usd
            + answer.output_tokens * self.output_usd
        )


def _anthropic_variables(url: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-tests-0123456789abcdef"}


def _openai_variables(url: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-proj-tests-0123456789abcdef"}


def _google_variables(url: str) -> dict[str, str]:
    return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "AIza-tests-0123456789abcdef"}


_GPT = ("openai/gpt-5", 400_000, 1.25, 10.0, 0.125, 1.25, _openai_variables)
VENDORS = (
    Vendor("anthropic", "anthropic/claude-opus-4-6", 1_000_000, 5.0, 25.0, 0.5, 6.25, _anthropic_variables),
    Vendor("openai", *_GPT),
    Vendor("openai-responses", *_GPT, settings='[providers.openai]\napi = "responses"\n'),
    Vendor("google", "gemini/gemini-2.5-flash", 1_048_576, 0.3, 2.5, 0.03, 0.3, _google_variables),
)


@pytest.fixture(params=VENDORS, ids=[vendor.name for vendor in VENDORS])
def vendor(request: pytest.FixtureRequest) -> Vendor:
    chosen: Vendor = request.param
    return chosen


@pytest.fixture
def provider(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FakeVendor]:
    """A running server of the vendor; the environment of the test leads to it, and nowhere else."""
    with FakeVendor() as server:
        home = tmp_path_factory.mktemp("home")
        monkeypatch.setenv("HOME", str(home))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "LYRA_AGENT_MODEL"):
            monkeypatch.delenv(name, raising=False)
        for name in [name for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL"))]:
            monkeypatch.delenv(name)
        for name, value in vendor.variables(server.url).items():
            monkeypatch.setenv(name, value)
        write_settings(vendor, home)
        yield server


def write_settings(vendor: Vendor, home: Path) -> None:
    """Write the user's settings that choose this vendor's format."""
    path = home / ".config" / "lyra" / "lyra.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(vendor.settings)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one vendor of each test of Sage and of the commands, in turn; `make verify` tries the others. The formats
    themselves are tested in `tests/models`, and each file still meets every vendor that has as many tests."""
    alike: defaultdict[tuple[str, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        chosen = parameters.get("vendor")
        if isinstance(chosen, Vendor) and item.nodeid.startswith(("tests/cli/", "tests/sage/")):
            file, _, name = item.nodeid.partition("::")
            alike[file, name.replace(chosen.name, "", 1)].append(item)
    turns = Counter[str]()
    for (file, _), vendors in sorted(alike.items()):
        kept = vendors[turns[file] % len(vendors)]
        turns[file] += len(vendors) > 1
        for item in vendors:
            if item is not kept:
                item.add_marker(pytest.mark.long)


# ---------------------------------------------------------------------- the server


class FakeVendor:
    """A server of all three vendors. `say` sets the answers, in order; the last one is given again and again."""

    def __init__(self) -> None:
        self._answers: list[Answer] = [Answer("Hello.")]
        self.answered: list[Answer] = []
        self.requests: list[Sent] = []
        self.status, self.headers = 200, dict[str, str]()  # of the answer that is being written
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def say(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def __enter__(self) -> FakeVendor:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes] | None:
        """The content type and the bytes of the answer; None for a path that no vendor has."""
        wire = next((wire for part, wire in _WIRES.items() if part in path), None)
        if wire is None:
            return None
        read, write = wire
        model = body.get("model") or path.partition("/models/")[2].partition(":")[0]
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.requests.append(read(Sent(str(model), body), body))
        time.sleep(answer.delay_s)
        if answer.status != 200:
            error = {"type": "overloaded_error", "message": answer.text, "status": "UNAVAILABLE"}
            self.status, self.headers = answer.status, {"retry-after": answer.retry_after} if answer.retry_after else {}
            return _whole({"type": "error", "error": error})
        self.status, self.headers = 200, {}
        self.answered.append(answer)
        kind, data = write(answer, body, path)
        if answer.breaks_off:  # the text has come, and nothing that ends the answer
            data = data[: data.index(json.dumps(answer.text).encode()) + len(answer.text) + 2]
            data = data[: data.rfind(b"\n\n") + 2] + data[data.rfind(b"\n\n") + 2 :].partition(b"\n\n")[0]
        return kind, data


def _handler(vendor: FakeVendor) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = vendor.answer(self.path, body)
            kind, data = answer if answer is not None else ("text/plain", b"no such path\n")
            self.send_response(vendor.status if answer is not None else 404)
            self.send_header("content-type", kind)
            for name, value in vendor.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler


_STREAM, _JSON = "text/event-stream", "application/json"


def _stream(*events: dict[str, Any], done: bool = False) -> tuple[str, bytes]:
    lines: list[str] = []
    for event in events:
        lines += [f"event: {event['type']}"] if "type" in event else []
        lines += [f"data: {json.dumps(event)}", ""]
    return _STREAM, ("\n".join([*lines, *(["data: [DONE]", ""] if done else [])]) + "\n").encode()


def _whole(document: dict[str, Any]) -> tuple[str, bytes]:
    return _JSON, json.dumps(document).encode()


def _text_of(content: Any) -> str:
    """The text of a message's content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def _parts_of(content: Any, kind: str = "text") -> list[dict[str, Any]]:
    return [{"type": kind, "text": content}] if isinstance(content, str) else list(content)


# ---------------------------------------------------------------------- Anthropic


def _read_anthropic(sent: Sent, body: dict[str, Any]) -> Sent:
    sent.system = _text_of(body.get("system"))
    sent.tools = [tool["name"] for tool in body.get("tools", ())]
    sent.asks_to_search = any(tool.get("type", "").startswith("web_search_") for tool in body.get("tools", ()))
    sent.asks_to_think = "thinking" in body
    for message in body["messages"]:
        for part in _parts_of(message["content"]):
            if part["type"] == "text":
                (sent.texts if message["role"] == "user" else sent.said).append(part["text"])
            elif part["type"] == "image":
                sent.images.append((part["source"]["media_type"], part["source"]["data"]))
            elif part["type"] == "thinking":
                sent.signatures.append(part["signature"])
            elif part["type"] == "tool_use":
                sent.calls.append(Call(part["name"], part["input"]))
            elif part["type"] == "tool_result":
                sent.results.append(_text_of(part.get("content")))
    return sent


def _write_anthropic(answer: Answer, body: dict[str, Any], _path: str) -> tuple[str, bytes]:
    usage = {
        "input_tokens": answer.input_tokens - answer.cached_tokens - answer.written_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "cache_creation_input_tokens": answer.written_tokens,
        "output_tokens": answer.output_tokens,
    }
    stop = "max_tokens" if answer.is_cut else "tool_use" if answer.calls else "end_turn"
    blocks: list[dict[str, Any]] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": answer.signature})
    if answer.sources:
        pages = [
            {"type": "web_search_result", "url": url, "title": title, "encrypted_content": "abc", "page_age": None}
            for url, title in answer.sources
        ]
        search = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "q"}}
        found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01", "content": pages}
        blocks += [search, found]
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    blocks += [
        {"type": "tool_use", "id": f"toolu_{number:02}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(answer.calls)
    ]
    written = {f"toolu_{number:02}": text for number, text in enumerate(answer.arguments_text)}
    message = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    if not body.get("stream"):
        return _whole({**message, "content": blocks, "stop_reason": stop, "usage": usage})
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        started, deltas = _anthropic_deltas(block, written)
        events.append({"type": "content_block_start", "index": index, "content_block": started})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": answer.output_tokens}})
    return _stream(*events, {"type": "message_stop"})


def _anthropic_deltas(block: dict[str, Any], written: dict[str, str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and the deltas that fill it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if block["type"] == "web_search_tool_result":
        return block, []
    text = written.get(block["id"]) or json.dumps(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]


# ---------------------------------------------------------------------- OpenAI


def _read_image_url(url: str) -> tuple[str, str]:
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return kind, data


def _read_chat(sent: Sent, body: dict[str, Any]) -> Sent:
    sent.tools = [tool["function"]["name"] for tool in body.get("tools", ())]
    sent.asks_to_think = "reasoning_effort" in body
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] in ("system", "developer"):
            sent.system += _text_of(content)
        elif message["role"] == "user":
            parts = _parts_of(content)
            sent.texts += [part["text"] for part in parts if part["type"] == "text"]
            sent.images += [_read_image_url(part["image_url"]["url"]) for part in parts if part["type"] == "image_url"]
        elif message["role"] == "assistant":
            sent.said += [text] if (text := _text_of(content)) else []
            functions = [call["function"] for call in message.get("tool_calls", ())]
            sent.calls += [Call(function["name"], json.loads(function["arguments"])) for function in functions]
        else:
            sent.results.append(_text_of(content))
    return sent


def _write_chat(answer: Answer, body: dict[str, Any], _path: str) -> tuple[str, bytes]:
    usage = {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": answer.thinking_tokens, "audio_tokens": 0},
    }
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": text}}
        for number, ((name, _), text) in enumerate(zip(answer.calls, answer.arguments_text, strict=True))
    ]
    finish = "length" if answer.is_cut else "tool_calls" if calls else "stop"
    head = {"id": "chatcmpl-1", "created": 1_760_000_000, "model": f"{body['model']}-2025-08-07"}
    if not body.get("stream"):
        message = {"role": "assistant", "content": answer.text or None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return _whole({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": answer.text}] if answer.text else []
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls)]
    chunk = {**head, "object": "chat.completion.chunk"}
    chunks = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if body.get("stream_options", {}).get("include_usage"):
        chunks.append({**chunk, "choices": [], "usage": usage})
    return _stream(*chunks, done=True)


def _read_responses(sent: Sent, body: dict[str, Any]) -> Sent:
    sent.system = body.get("instructions") or ""
    sent.tools = [tool["name"] for tool in body.get("tools", ()) if tool["type"] == "function"]
    sent.asks_to_search = {"type": "web_search"} in body.get("tools", ())
    sent.asks_to_think = "reasoning" in body
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind = item.get("type", "message")
        if kind == "reasoning":
            sent.signatures.append(item["encrypted_content"])
        elif kind == "function_call":
            sent.calls.append(Call(item["name"], json.loads(item["arguments"])))
        elif kind == "function_call_output":
            sent.results.append(_text_of(item["output"]))
        elif item["role"] == "assistant":
            sent.said.append(_text_of(item["content"]))
        elif item["role"] in ("system", "developer"):
            sent.system += _text_of(item["content"])
        else:
            parts = _parts_of(item["content"], "input_text")
            sent.texts += [part["text"] for part in parts if part["type"] == "input_text"]
            sent.images += [_read_image_url(part["image_url"]) for part in parts if part["type"] == "input_image"]
    return sent


def _write_responses(answer: Answer, body: dict[str, Any], _path: str) -> tuple[str, bytes]:
    usage = {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": answer.cached_tokens},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.thinking_tokens},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    items: list[dict[str, Any]] = []
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": answer.signature})
    if answer.sources:
        query = {"type": "search", "query": "q"}
        items.append({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": query})
    if answer.text:
        cited = [
            {"type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 1}
            for url, title in answer.sources
        ]
        part = {"type": "output_text", "text": answer.text, "annotations": cited}
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]})
    items += [
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": name,
            "arguments": text,
            "status": "completed",
        }
        for number, ((name, _), text) in enumerate(zip(answer.calls, answer.arguments_text, strict=True))
    ]
    status = "incomplete" if answer.is_cut else "completed"
    head = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_760_000_000,
        "model": f"{body['model']}-2025-08-07",
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if answer.is_cut else None,
        "error": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": items,
        "usage": usage,
    }
    if not body.get("stream"):
        return _whole(head)
    opening = {**head, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": opening}]
    for index, item in enumerate(items):
        events += _responses_item(index, item)
    events.append({"type": f"response.{status}", "response": head})
    return _stream(*({**event, "sequence_number": number} for number, event in enumerate(events)))


def _responses_item(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one item of a response."""
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        part = item["content"][0]
        place["content_index"] = 0
        begun = {**item, "status": "in_progress", "content": []}
        inner = [
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": part["text"], "logprobs": []},
            *(
                {
                    "type": "response.output_text.annotation.added",
                    **place,
                    "annotation_index": index,
                    "annotation": page,
                }
                for index, page in enumerate(part["annotations"])
            ),
            {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
        ]
    elif item["type"] == "web_search_call":
        begun = {**item, "status": "in_progress"}
        inner = [
            {"type": "response.web_search_call.in_progress", **place},
            {"type": "response.web_search_call.searching", **place},
            {"type": "response.web_search_call.completed", **place},
        ]
    elif item["type"] == "reasoning":
        part = item["summary"][0]
        place["summary_index"] = 0
        begun = {**item, "summary": [], "encrypted_content": ""}
        inner = [
            {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.reasoning_summary_text.delta", **place, "delta": part["text"]},
            {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]},
            {"type": "response.reasoning_summary_part.done", **place, "part": part},
        ]
    else:
        begun = {**item, "status": "in_progress", "arguments": ""}
        inner = [
            {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]},
            {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]},
        ]
    added = {"type": "response.output_item.added", "output_index": index, "item": begun}
    return [added, *inner, {"type": "response.output_item.done", "output_index": index, "item": item}]


# ---------------------------------------------------------------------- Google


def _read_google(sent: Sent, body: dict[str, Any]) -> Sent:
    sent.system = _text_of(body.get("systemInstruction", {}).get("parts"))
    sent.tools = [tool["name"] for tools in body.get("tools", ()) for tool in tools.get("functionDeclarations", ())]
    sent.asks_to_search = {"googleSearch": {}} in body.get("tools", ())
    sent.asks_to_think = "thinkingConfig" in body.get("generationConfig", {})
    for content in body["contents"]:
        for part in content["parts"]:
            if "thoughtSignature" in part:
                sent.signatures.append(part["thoughtSignature"])
            if "functionCall" in part:
                sent.calls.append(Call(part["functionCall"]["name"], part["functionCall"]["args"]))
            elif "functionResponse" in part:
                response = part["functionResponse"]["response"]
                sent.results.append(str(response.get("output", response.get("error"))))
            elif "inlineData" in part:
                sent.images.append((part["inlineData"]["mimeType"], part["inlineData"]["data"]))
            elif part.get("text") and not part.get("thought"):
                (sent.texts if content["role"] == "user" else sent.said).append(part["text"])
    return sent


def _write_google(answer: Answer, body: dict[str, Any], path: str) -> tuple[str, bytes]:
    usage = {
        "promptTokenCount": answer.input_tokens,
        "cachedContentTokenCount": answer.cached_tokens,
        "candidatesTokenCount": answer.output_tokens - answer.thinking_tokens,
        "thoughtsTokenCount": answer.thinking_tokens,
        "totalTokenCount": answer.input_tokens + answer.output_tokens,
    }
    parts: list[dict[str, Any]] = []
    if answer.thinking:
        parts.append({"text": answer.thinking, "thought": True})
    if answer.text:
        parts.append({"text": answer.text})
    whole = answer.calls[:-1] if answer.raw else answer.calls  # this vendor passes on what it can read
    parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in whole]
    if answer.thinking:  # the signature is on the first call, else on the last text
        signed = next((part for part in parts if "functionCall" in part), parts[-1])
        signed["thoughtSignature"] = answer.signature
    model = path.partition("/models/")[2].partition(":")[0]
    head = {"modelVersion": model, "responseId": "r-1"}
    finish = "MAX_TOKENS" if answer.is_cut else "MALFORMED_FUNCTION_CALL" if answer.raw else "STOP"
    last = {**head, "usageMetadata": usage}
    if ":generateContent" in path:
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, "finishReason": finish}
        return _whole({**last, "candidates": [candidate]})
    chunks = [{**head, "candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts]
    ended: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": ""}]}, "index": 0, "finishReason": finish}
    if answer.sources:
        found = [{"web": {"uri": url, "title": title}} for url, title in answer.sources]
        ended["groundingMetadata"] = {"webSearchQueries": ["q"], "groundingChunks": found, "groundingSupports": []}
    return _stream(*chunks, {**last, "candidates": [ended]})


_WIRES: dict[str, tuple[Callable[[Sent, dict[str, Any]], Sent], Callable[..., tuple[str, bytes]]]] = {
    "/v1/messages": (_read_anthropic, _write_anthropic),
    "/v1/chat/completions": (_read_chat, _write_chat),
    "/v1/responses": (_read_responses, _write_responses),
    ":streamGenerateContent": (_read_google, _write_google),
    ":generateContent": (_read_google, _write_google),
}
