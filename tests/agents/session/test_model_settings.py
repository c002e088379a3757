"""`lyra.toml` reaches the models: providers, prices and what a project may not do, against a real HTTP server."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lyra
from lyra import Agent, Config, Kernel
from lyra.agents.session import models
from lyra.errors import BudgetExceeded, ConfigError, ModelError
from lyra.models import pricing
from tests import trusting
from tests.agents.turn.test_policies import MODEL, text_reply
from tests.models.server import Asked, Reply, Server, run, sse

KEY = "sk-planted-0123456789abcdef"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a project's folder to work in; the usual variables are unset."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".config" / "lyra").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def users(home: Path, text: str) -> None:
    (home / "home" / ".config" / "lyra" / "lyra.toml").write_text(text)


def projects(home: Path, text: str) -> None:
    """A project that the user trusts: what it may not do even then is tested here."""
    (home / "project" / "lyra.toml").write_text(text)
    trusting.answer(home / "project")


def chat(text: str) -> Reply:
    """A whole answer in OpenAI's format."""
    piece = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {}}]}
    first = {**piece, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}
    last = {**piece, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {**piece, "choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}}
    return Reply(sse(first, last, usage, done=True))


@pytest.mark.parametrize("whose", [users, projects])
def test_a_key_and_an_address_from_the_file(home, monkeypatch, whose):
    """`lyra.run` finds both, in the user's file and (on this machine) in a project's."""
    monkeypatch.setenv("TEAM_KEY", KEY)

    async def main() -> None:
        async with Server(text_reply("hello")) as server:
            whose(home, f'[providers.anthropic]\napi_key = "env:TEAM_KEY"\nbase_url = "{server.url}"')
            assert await lyra.run(Agent(model=MODEL), "hi") == "hello"
            assert [piece async for piece in lyra.stream(Agent(model=MODEL), "hi")] == ["h", "e", "l", "l", "o"]
            assert [asked.headers["x-api-key"] for asked in server.requests] == [KEY, KEY]

    run(main())


def test_a_server_with_a_name_of_its_own(home):
    """Any name with a base URL speaks OpenAI's format; its price is in the file too."""

    async def main() -> None:
        async with Server(chat("local")) as server:
            projects(
                home,
                f'[providers.here]\nbase_url = "{server.url}/v1"\n'
                '[prices."here/some-model"]\ninput_usd_per_mtok = 1\noutput_usd_per_mtok = 10',
            )
            answer = await lyra.run(Agent(model="here/some-model", budget="$1"), "hi")
            assert answer == "local"
            assert answer.cost_usd == pytest.approx((1000 * 1 + 100 * 10) / 1e6)
            assert server.requests[0].path == "/v1/chat/completions"
            assert server.requests[0].data["model"] == "some-model"

    run(main())


class Column(NamedTuple):
    """A setting of `[providers.NAME]` in a file, and what the server then sees."""

    model: str
    line: str
    seen: Callable[[Asked], object]
    expected: object
    beside: str = ""


COLUMNS = {
    "api": Column("here/m", 'api = "responses"', lambda asked: asked.path, "/responses"),
    "api_key": Column("here/m", f'api_key = "{KEY}"', lambda asked: asked.headers["authorization"], f"Bearer {KEY}"),
    "base_url": Column("here/m", "", lambda asked: asked.path, "/chat/completions"),
    "headers": Column("here/m", 'headers = {X-Team = "blue"}', lambda asked: asked.headers["x-team"], "blue"),
    "api_version": Column(
        "gemini/m", 'api_version = "v9"', lambda asked: asked.path.split("/")[1], "v9", f'api_key = "{KEY}"'
    ),
    "project": Column("vertex/m", 'project = "p7"', lambda asked: asked.path.split("/")[3], "p7", f'api_key = "{KEY}"'),
    "region": Column(
        "vertex/m",
        'region = "europe-west4"',
        lambda asked: asked.path.split("/")[5],
        "europe-west4",
        f'api_key = "{KEY}"\nproject = "p7"',
    ),
}


@pytest.mark.parametrize("field", COLUMNS)
def test_a_setting_of_a_provider_is_seen_by_its_server(home, field):
    """From the user's file to the request: not one of them is only read."""
    column = COLUMNS[field]

    async def main() -> Asked:
        async with Server(Reply.json({}, status=400)) as server:
            section = column.model.partition("/")[0]
            users(home, f'[providers.{section}]\nbase_url = "{server.url}"\n{column.line}\n{column.beside}')
            with pytest.raises(ModelError):
                await lyra.run(Agent(model=column.model, retry=1), "hi")
            return server.requests[0]

    assert column.seen(run(main())) == column.expected


def test_the_timeouts_of_a_provider_end_a_call(home):
    """A server that says nothing is left after `first_s`, which the file sets."""

    async def main() -> None:
        async with Server(Reply(hang=True)) as server:
            users(home, f'[providers.here]\nbase_url = "{server.url}"\ntimeouts = {{first_s = 0.2}}')
            with pytest.raises(ModelError, match=r"0\.2"):
                await asyncio.wait_for(lyra.run(Agent(model="here/m", retry=1), "hi"), 20)
            assert len(server.requests) == 1

    run(main())


def test_without_a_price_a_money_budget_is_refused(home):
    """The same server without the price: unknown is unknown."""

    async def main() -> None:
        async with Server(chat("local")) as server:
            projects(home, f'[providers.here]\nbase_url = "{server.url}/v1"')
            with pytest.raises(ConfigError, match="price of here/some-model is unknown"):
                await lyra.run(Agent(model="here/some-model", budget="$1"), "hi")
            assert server.requests == []

    run(main())


def test_a_kernel_of_a_config_uses_that_one(home, monkeypatch):
    """`Kernel.from_config` hands over what it was given; the files of the working folder do not count then."""
    monkeypatch.setenv("TEAM_KEY", KEY)

    async def main() -> None:
        async with Server(text_reply("yes")) as server:
            projects(home, '[providers.anthropic]\nbase_url = "http://127.0.0.1:1"')
            flags = (f"providers.anthropic.base_url={server.url}", "providers.anthropic.api_key=env:TEAM_KEY")
            config = Config.load(flags=(*flags, "kernel.store=memory"))
            async with Kernel.from_config(config) as kernel:
                process = await kernel.spawn(Agent(model=MODEL))
                assert await process.send("hi") == "yes"

    run(main())


def test_the_users_price_counts(home, monkeypatch):
    """A dearer price is what the budget is held against."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    async def main() -> None:
        async with Server(text_reply("yes")) as server:
            text = f'[providers.anthropic]\nbase_url = "{server.url}"\n[prices."{MODEL}"]\n'
            users(home, text + "input_usd_per_mtok = 300\noutput_usd_per_mtok = 1500")
            with pytest.raises(BudgetExceeded):
                await lyra.run(Agent(model=MODEL, budget="$0.001", max_tokens=50), "hi")
            users(home, text + "input_usd_per_mtok = 0.1\noutput_usd_per_mtok = 0.1")
            answer = await lyra.run(Agent(model=MODEL, budget="$0.001", max_tokens=50), "hi")
            assert answer.cost_usd == pytest.approx(2e-6)  # 15 tokens, rounded up

    run(main())


@pytest.mark.parametrize(("budget", "requests"), [(None, 1), ("$1", 0)])
def test_a_price_is_looked_up_while_the_answer_is_waited_for(home, monkeypatch, budget, requests):
    """Loading the prices holds up no request that no money budget has to be asked about, and no answer that has
    come."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setattr(models, "_PRICE_AFTER_S", 0.4)  # a busy machine has sent the request by then, too
    published, order = pricing._find_published, []

    def body() -> Iterator[bytes]:
        order.append("answer")
        yield b"".join(reply.pieces())

    reply = text_reply("yes", tokens_in=10, tokens_out=5)

    async def main() -> None:
        async with Server(dataclasses.replace(reply, body=body(), delay_s=0.8)) as server:
            users(home, f'[providers.anthropic]\nbase_url = "{server.url}"')

            def look_up(*args: Any) -> Any:
                order.append(f"price after {len(server.requests)} requests")
                return published(*args)

            monkeypatch.setattr(pricing, "_find_published", look_up)
            answer = await lyra.run(Agent(model=MODEL, budget=budget, max_tokens=50), "hi")
            assert answer.cost_usd == pytest.approx((10 * 3 + 5 * 15) / 1e6)

    run(main())
    assert order == [f"price after {requests} requests", "answer"]


def test_a_projects_cheap_price_does_not_stretch_a_budget(home, monkeypatch):
    """The published price holds: the call that the money cannot pay is refused."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    async def main() -> None:
        async with Server(text_reply("yes", tokens_in=10, tokens_out=5)) as server:
            text = f'[providers.anthropic]\nbase_url = "{server.url}"\n[prices."{MODEL}"]\n'
            projects(home, text + "input_usd_per_mtok = 0\noutput_usd_per_mtok = 0")
            answer = await lyra.run(Agent(model=MODEL, budget="$0.01", max_tokens=50), "hi")
            assert answer.cost_usd == pytest.approx((10 * 3 + 5 * 15) / 1e6)

    run(main())


def test_a_project_that_names_its_own_server_gets_nothing(home, monkeypatch):
    """An exfiltration: the key stays, and the error says what was asked for in vain."""
    monkeypatch.setenv("TEAM_KEY", KEY)
    text = '[providers.corp]\nbase_url = "http://{}"\napi_key = "env:TEAM_KEY"'

    async def main() -> None:
        async with Server(text_reply("thanks for the key")) as server:
            projects(home, text.format(f"far.example:{server.port}"))
            with pytest.raises(ConfigError) as caught:
                await lyra.run(Agent(model="corp/x"), "hi")
            assert server.requests == []
            assert "there is no provider 'corp'" in caught.value.message
            assert "lyra.toml:2: a project's file may name only servers on this machine" in (caught.value.hint or "")
            assert KEY not in caught.value.render()

    run(main())


@pytest.mark.parametrize("named", ["127.0.0.1", "localhost", "evil.localhost"])
def test_without_trust_no_key_leaves_for_a_projects_address(home, monkeypatch, named):
    """Not to a port of this machine either: the call goes where the user's own settings say."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("TEAM_KEY", KEY)

    async def main() -> None:
        async with Server(text_reply("mine")) as mine, Server(text_reply("thanks for the key")) as theirs:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", mine.url)
            address = f"http://{named}:{theirs.port}"
            text = f'[providers.anthropic]\nbase_url = "{address}"\n[providers.corp]\nbase_url = "{address}"\n'
            (home / "project" / "lyra.toml").write_text(f'{text}api_key = "env:TEAM_KEY"\n')
            assert await lyra.run(Agent(model=MODEL), "hi") == "mine"
            with pytest.raises(ConfigError) as caught:
                await lyra.run(Agent(model="corp/x"), "hi")
            assert "lyra trust add" in (caught.value.hint or "")
            assert theirs.requests == []
            assert mine.requests[0].headers["x-api-key"] == KEY

    run(main())


def test_a_mistake_in_the_file_is_told_at_the_first_model(home):
    """With its line; a simulated model does not even look."""
    projects(home, "[providers.anthropic]\napi_kye = 'x'")
    with pytest.raises(ConfigError) as caught:
        lyra.run(Agent(model=MODEL), "hi")
    assert caught.value.place == "lyra.toml:2"
    assert caught.value.hint == "did you mean api_key?"
    assert lyra.run(Agent(model="sim/echo"), "hi") == "hi"


def test_the_file_is_read_once_a_kernel(home, monkeypatch):
    """Settings do not change under a running kernel."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    loads: list[Any] = []
    load = Config.load

    def counted(*args: Any, **settings: Any) -> Config:
        loads.append(args)
        return load(*args, **settings)

    monkeypatch.setattr(Config, "load", counted)

    async def main() -> None:
        async with Server(text_reply("yes")) as server, Kernel() as kernel:
            projects(home, f'[providers.anthropic]\nbase_url = "{server.url}"')
            processes = [await kernel.spawn(Agent(f"a{number}", model=MODEL)) for number in range(3)]
            await asyncio.gather(*(process.send("hi") for process in processes))
            assert len(loads) == 1

    run(main())


def test_what_is_not_needed_is_not_imported():
    """A simulated agent reads no configuration, knows no prices and speaks no HTTP."""
    program = (
        "import sys, lyra\n"
        "assert lyra.run(lyra.Agent(model='sim/echo'), 'hi') == 'hi'\n"
        "heavy = {'lyra.config', 'genai_prices', 'httpx2', 'pydantic', 'tomllib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_key_of_the_file_is_no_name_of_a_model(home):
    """Also where it has no form of a key, and no model was asked before: the file is read first."""
    key = "plain words of the team"
    users(home, f'[providers.here]\nbase_url = "http://127.0.0.1:9"\napi_key = "{key}"')

    async def main() -> None:
        await lyra.run(Agent(model=f"here/{key}"), "hi")

    with pytest.raises(ConfigError, match="the name of the model is a key") as caught:
        run(main())
    assert key not in f"{caught.value} {caught.value.hint}"
