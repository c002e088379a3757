"""Round trips with npm's `@copilotkit/aimock`, a server that speaks the formats of many providers.

Needs node 20 and npm; the package is installed once, into pytest's cache. Where that cannot be done the tests are
skipped, and `LYRA_AIMOCK=/path/to/node_modules/.bin/llmock` points them at one that is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lyra.core.message import Message
from lyra.core.tool import ToolResult
from lyra.errors import ModelError
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from tests.models.oracle import IMAGE
from tests.models.server import run
from tests.models.wires import WEATHER

pytestmark = pytest.mark.slow

PACKAGE = "@copilotkit/aimock@1.43.0"
LONG = "Hällo wörld, this is a rather long greeting that comes in pieces."
FIXTURES = {
    "fixtures": [
        {
            "match": {"userMessage": "weather", "hasToolResult": False},
            "response": {
                "content": "Let me look.",
                "toolCalls": [
                    {"name": "get_weather", "arguments": '{"city":"Paris","days":2}'},
                    {"name": "get_weather", "arguments": '{"city":"Röme"}'},
                ],
            },
        },
        {"match": {"userMessage": "weather"}, "response": {"content": "It is sunny."}},
        {
            "match": {"userMessage": "limit"},
            "response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429},
        },
        {"match": {"userMessage": "picture"}, "response": {"content": "A pixel."}},
        {"match": {"userMessage": "think"}, "response": {"content": "So.", "reasoning": "Hmm."}},
        {"match": {"userMessage": "hello"}, "response": {"content": LONG}},
    ]
}


@dataclass(frozen=True)
class Format:
    model: str
    base: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    images: bool = True
    thinks: bool = True

    def client(self, url: str) -> LLMClient:
        provider = self.model.partition("/")[0]
        return LLMClient({provider: {"api_key": "k", "base_url": url + self.base, **self.settings}}, env={})


FORMATS = {
    "anthropic": Format("anthropic/claude-sonnet-4-5"),
    "openai-chat": Format("openai/gpt-5", "/v1"),
    "openai-responses": Format("openai/gpt-5", "/v1", {"api": "responses"}),
    "azure": Format("azure/gpt-5", settings={"api_version": "2024-10-21"}),
    "gemini": Format("gemini/gemini-2.5-flash"),
    "vertex": Format("vertex/gemini-2.5-flash", settings={"project": "p1", "region": "us-central1"}),
    # A model without prompt caching: aimock takes a cache point among the tools for a tool.
    "bedrock": Format("bedrock/deepseek.r1-v1:0", settings={"region": "us-east-1"}, images=False),
    "ollama": Format("ollama/llama3", images=False, thinks=False),
}


def _aimock(cache: pytest.Cache) -> str:
    given = os.environ.get("LYRA_AIMOCK")
    if given:
        return given
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("aimock needs node and npm: install node 20 or later")
    folder = Path(cache.mkdir("aimock"))
    program = folder / "node_modules" / ".bin" / "llmock"
    if not program.exists():
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"npm cannot install {PACKAGE} ({type(error).__name__}); set LYRA_AIMOCK to its program")
    return str(program)


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert request.config.cache is not None
    program = _aimock(request.config.cache)
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps(FIXTURES), encoding="utf-8")
    command = [program, "-p", "0", "-c", "7", "-f", str(fixtures), "--strict"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            lines: list[str] = []
            for line in server.stdout:
                lines.append(line)
                match = re.search(r"listening on (http://\S+)", line)
                if match:
                    break
            else:
                pytest.fail("aimock did not start: " + "".join(lines))
            yield match[1]
        finally:
            server.terminate()


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


def ask(form: Format, url: str, *messages: Message, **settings: Any) -> Any:
    async def main() -> Any:
        async with form.client(url) as client:
            return await client.complete(form.model, Request("m", messages, max_tokens=100, **settings))

    return run(main())


def test_text(form: Format, url: str) -> None:
    answer = ask(form, url, Message("user", "hello"), system="You are brief.")
    assert answer.text == LONG
    assert answer.stop_reason == "end"


def test_tools_there_and_back(form: Format, url: str) -> None:
    question = Message("user", "the weather?")
    called = ask(form, url, question, tools=(WEATHER,))
    assert [call.arguments for call in called.tool_calls] == [{"city": "Paris", "days": 2}, {"city": "Röme"}]
    assert called.stop_reason == "tool_calls"
    results = Message(
        "tool", tool_results=tuple(ToolResult(call.id, call.name, {"degrees": 21}) for call in called.tool_calls)
    )
    assert ask(form, url, question, called.message, results, tools=(WEATHER,)).text == "It is sunny."


def test_images(form: Format, url: str) -> None:
    if not form.images:
        pytest.skip("this provider takes no images")
    picture = Message("user", ({"type": "text", "text": "a picture"}, IMAGE))
    assert ask(form, url, picture).text == "A pixel."


def test_too_many_requests(form: Format, url: str) -> None:
    with pytest.raises(ModelError) as caught:
        ask(form, url, Message("user", "limit"))
    assert caught.value.kind == "rate_limit"
    assert caught.value.message == "slow down"


def test_nothing_known_to_answer(form: Format, url: str) -> None:
    """The server's own refusal arrives as a ModelError with its words."""
    with pytest.raises(ModelError) as caught:
        ask(form, url, Message("user", "unheard of"))
    assert caught.value.status >= 400


def test_thinking(form: Format, url: str) -> None:
    if not form.thinks:
        pytest.skip("aimock writes Ollama's thoughts under a name that Ollama does not have")
    answer = ask(form, url, Message("user", "think"), thinking_tokens=2048)
    assert answer.text == "So."
    thoughts = [part["thinking"] for part in answer.message.content if isinstance(part, dict) and "thinking" in part]
    assert thoughts == ["Hmm."]
