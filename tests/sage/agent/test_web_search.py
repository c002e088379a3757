"""`WebSearch`: by the vendor's own search where there is one, else by the engine of the user's settings."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from lyra.config import Config
from lyra.errors import ConfigError
from tests.real_models import Answer, Call, FakeVendor, Vendor
from tests.sage.open_session import Project, call, say

SEARCH = Call("WebSearch", {"query": "newest heron & co"})
PAGES = (("https://herons.example/new", "The newest heron"), ("https://birds.example/", "Birds"))


@pytest.fixture
def place(vendor: Vendor, provider: FakeVendor, project: Project) -> Project:
    settings = project.home / ".config" / "lyra" / "lyra.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(vendor.settings)
    return project


async def test_the_vendor_searches(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    """A question of its own, without the conversation and its tools; the answer and its sources go to the model, the
    session is tainted, and the tokens are paid for."""
    found = Answer("It is grey.", sources=PAGES)
    provider.say(Answer(calls=(SEARCH,)), found, Answer("Grey."))
    async with place.open(model=vendor.model, options={"allow": ("WebSearch",)}) as session:
        lines = await say(session, "What is the newest heron?")
        assert session.agent_session.tainted
    first, asked, last = provider.requests
    assert "WebSearch" in first.tools
    assert (asked.asks_to_search, asked.texts) == (True, ["newest heron & co"])
    assert not first.asks_to_search
    assert not last.asks_to_search
    (output,) = last.results
    assert output.startswith("It is grey.")
    assert output.endswith("- The newest heron: https://herons.example/new\n- Birds: https://birds.example/")
    assert lines[-1]["text"] == "Grey."
    assert lines[-1]["cost_usd"] == pytest.approx(vendor.cost_usd(*provider.answered))
    assert len([line for line in lines if line["type"] == "usage"]) == 3


async def test_a_search_is_asked_about(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    """No rule, no person: nothing leaves the machine."""
    provider.say(Answer(calls=(SEARCH,)), Answer("I could not."))
    async with place.open(model=vendor.model) as session:
        lines = await say(session, "What is the newest heron?")
    assert not any(request.asks_to_search for request in provider.requests)
    assert lines[-1]["text"] == "I could not."
    (ended,) = [line for line in lines if line["type"] == "tool_end"]
    assert ended["error_code"] == "permission_denied"


# ---------------------------------------------------------------- an engine of the user's own


class Engine:
    """A search engine on the loopback; `answer` is what it says, `asked` has the queries and headers it got."""

    def __init__(self) -> None:
        self.answer: Any = {
            "results": [{"title": "Herons", "url": "https://herons.example/", "content": "Grey birds."}]
        }
        self.asked: list[tuple[str, dict[str, str]]] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)["q"][0]
                engine.asked.append((query, {name.lower(): value for name, value in self.headers.items()}))
                data = json.dumps(engine.answer).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/search?format=json&q={{query}}"


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    threading.Thread(target=engine.server.serve_forever, args=(0.01,), daemon=True).start()
    yield engine
    engine.server.shutdown()
    engine.server.server_close()


async def search(project: Project, engine: Engine, *flags: str) -> Any:
    replies = (call("WebSearch", **SEARCH.arguments), {"text": "{result}"})
    options = {"allow": ("WebSearch",)}
    async with project.open(*replies, options=options, flags=(f"search.url={engine.url}", *flags)) as session:
        return (await say(session, "go"))[-1]["text"]


async def test_an_engine_is_asked_where_it_is_configured(project: Project, engine: Engine) -> None:
    """Also in the user's own network, and also where the model's vendor has no search."""
    assert await search(project, engine) == "Herons\nhttps://herons.example/\nGrey birds."
    (asked,) = engine.asked
    assert asked[0] == SEARCH.arguments["query"]
    assert "authorization" not in asked[1]


async def test_the_key_of_an_engine_comes_from_the_environment(
    project: Project, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SEARCH_KEY", "search-key-0123456789")
    await search(project, engine, "search.key=env:MY_SEARCH_KEY")
    assert engine.asked[0][1]["authorization"] == "Bearer search-key-0123456789"


@pytest.mark.parametrize(
    "answer",
    [
        {"web": {"results": [{"title": "A", "url": "https://a.example/", "description": "About a."}]}},
        {"organic_results": [{"title": "A", "link": "https://a.example/", "snippet": "About a."}]},
        {"items": [{"title": "A", "link": "https://a.example/", "snippet": "About a."}]},
    ],
)
async def test_answers_of_other_engines_are_read(project: Project, engine: Engine, answer: Any) -> None:
    engine.answer = answer
    assert await search(project, engine) == "A\nhttps://a.example/\nAbout a."


async def test_without_an_engine_and_a_vendor_there_is_no_such_tool(project: Project) -> None:
    async with project.open() as session:
        assert "WebSearch" not in session.headless.tool_names()


def test_an_engine_is_an_address_with_a_place_for_the_query(project: Project) -> None:
    for wrong in ("https://x.example/", "ftp://x.example/?q={query}", "https://{query}.example/?q=a", "x"):
        with pytest.raises(ConfigError, match=r"search\.url is an address"):
            Config.load(project.folder, flags=(f"search.url={wrong}",))
    with pytest.raises(ConfigError, match=r"search\.key is env:NAME"):
        Config.load(project.folder, flags=("search.key=abc",))


def test_a_project_cannot_choose_who_sees_the_queries(project: Project) -> None:
    project.write("lyra.toml", '[search]\nurl = "https://evil.example/?q={query}"\n')
    with pytest.raises(ConfigError, match=r"may not set search\.url"):
        Config.load(project.folder, trust=True)


async def test_variables_name_an_engine_and_its_key(
    project: Project, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SEARCH_KEY", "search-key-0123456789")
    monkeypatch.setenv("LYRA_SEARCH_URL", engine.url)
    monkeypatch.setenv("LYRA_SEARCH_KEY", "env:MY_SEARCH_KEY")
    replies = (call("WebSearch", **SEARCH.arguments), {"text": "{result}"})
    async with project.open(*replies, options={"allow": ("WebSearch",)}) as session:
        assert (await say(session, "go"))[-1]["text"].startswith("Herons")
    assert engine.asked[0][1]["authorization"] == "Bearer search-key-0123456789"
