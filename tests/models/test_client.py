"""LLMClient: any model by its name, and nothing imported before it is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import lyra.models
from lyra import Agent
from lyra.core.policies.retry import Retry
from lyra.core.providers import SETTINGS, USUAL
from lyra.errors import ConfigError, LyraError
from lyra.models import LLMClient, LLMProvider, Message, Request
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta
from lyra.models.wire.faults import KINDS, fault
from lyra.testing import MockServer
from tests.models.server import Reply, Server, run
from tests.models.wires import HELLO, KEY, WIRES


class Parrot(LLMProvider):
    name = "parrot"

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.asked.append(request)
        yield Started("1", request.model)
        yield TextDelta(request.messages[-1].text)
        yield Finished()

    async def close(self) -> None:
        self.closed += 1


def test_a_provider_of_ones_own() -> None:
    async def main() -> None:
        parrot = Parrot()
        async with LLMClient(env={}) as client:
            client.register("parrot", parrot)
            answer = await client.complete("parrot/green", HELLO)
            events = [event async for event in client.stream("parrot/green", HELLO)]
        assert answer.text == "hello"
        assert events[-1] == Finished()
        assert [request.model for request in parrot.asked] == ["green", "green"]
        assert HELLO.model == "m", "the request itself is not changed"
        assert parrot.closed == 1

    run(main())


def test_one_provider_can_stand_in_for_another() -> None:
    """A test puts its own in the place of the real one; no key is needed."""

    async def main() -> None:
        client = LLMClient(env={})
        client.register("anthropic", Parrot())
        assert (await client.complete("claude-sonnet-4-5", HELLO)).model == "claude-sonnet-4-5"

    run(main())


def test_names_with_a_slash_are_no_names_of_providers() -> None:
    with pytest.raises(ConfigError, match="no '/'"):
        LLMClient(env={}).register("a/b", Parrot())


def test_a_server_behind_a_base_url_speaks_openais_format() -> None:
    async def main() -> None:
        async with (
            Server(Reply(WIRES["openai-chat"].text)) as server,
            LLMClient({"here": {"base_url": server.url, "api_key": KEY}}, env={}) as client,
        ):
            answer = await client.complete("here/some/model", HELLO)
        assert answer.text == "Hällo wörld"
        assert server.requests[0].path == "/chat/completions"
        assert server.requests[0].data["model"] == "some/model"

    run(main())


def test_keys_and_addresses_from_the_environment() -> None:
    async def main() -> None:
        async with Server(Reply(WIRES["anthropic"].text)) as server:
            env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
            async with LLMClient(env=env) as client:
                assert (await client.complete("claude-sonnet-4-5", HELLO)).text == "Hällo wörld"
                assert client.provider("anthropic") is client.provider("anthropic")
        assert server.requests[0].headers["x-api-key"] == KEY

    run(main())


def test_a_missing_key_is_told_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        LLMClient(env={}).stream("gpt-4o", HELLO)


def test_an_unknown_name_is_told_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match="no provider"):
        LLMClient(env={}).stream("nowhere/x", HELLO)


def test_resolve_says_who_would_be_asked() -> None:
    client = LLMClient({"here": {"base_url": "http://localhost:1"}}, env={})
    assert str(client.resolve("here/x")) == "here/x"
    assert str(client.resolve("gpt-4o")) == "openai/gpt-4o"


def test_the_simulated_model_needs_nothing() -> None:
    async def main() -> None:
        async with LLMClient(env={}) as client:
            assert (await client.complete("sim/echo", HELLO)).text == "hello"

    run(main())


def test_a_client_outlives_its_loop() -> None:
    """Connections belong to a loop; a second loop gets its own."""
    client = LLMClient(env={"OPENAI_API_KEY": KEY})

    async def main() -> None:
        async with Server(Reply(WIRES["openai-chat"].text)) as server:
            client.register("openai", WIRES["openai-chat"].provider_at(server.url))
            assert (await client.complete("gpt-4o", HELLO)).text == "Hällo wörld"
            await client.close()
            assert (await client.complete("gpt-4o", HELLO)).text == "Hällo wörld"
            await client.close()

    run(main())
    run(main())


def test_importing_is_light() -> None:
    """No HTTP library and no provider before the first call; and no vendor's library ever."""
    heavy = "{'httpx2', 'httpx', 'anthropic', 'openai', 'google', 'botocore', 'genai_prices', 'pydantic'}"
    code = (
        "import sys, lyra.models\n"
        "from lyra.models import LLMClient, Request, Message\n"
        f"client = LLMClient(); print({heavy} & set(sys.modules), 'lyra.models.providers.anthropic' in sys.modules)\n"
        "client._env = {'ANTHROPIC_API_KEY': 'x'}; client.provider('anthropic')\n"
        f"print({heavy} & set(sys.modules), 'lyra.models.providers.openai' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["set() False", "set() False"]


def test_public_names_are_where_a_user_would_look() -> None:
    for name in lyra.models.__all__:
        assert getattr(lyra.models, name) is not None
    assert lyra.models.Message is Message
    assert {"LLMClient", "LLMProvider", "Request", "Completion", "TokenUsage", "Message"} <= set(dir(lyra.models))
    with pytest.raises(AttributeError):
        getattr(lyra.models, "nonsense")  # noqa: B009 (looking it up is the test)


def test_the_page_about_models_is_complete() -> None:
    """Every provider, variable, setting and kind of error is in the how-to."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert not {*KINDS} - rows, f"without a line in docs/how-to/models.md: {sorted({*KINDS} - rows)}"
    table = page.partition("| provider | key | address |")[2].partition("\n\n")[0]
    lines = dict(re.findall(r"^\| `(\w+)` \|(.*)", table, re.MULTILINE))
    assert not {*USUAL} - {*lines}, f"without a line in docs/how-to/models.md: {sorted({*USUAL} - {*lines})}"
    assert not {*lines} - {*USUAL}, f"without a row in USUAL of core/providers.py: {sorted({*lines} - {*USUAL})}"
    for name, usual in USUAL.items():
        for variable in (*usual.key, *usual.url, *usual.project, *usual.api_version):
            assert f"`{variable}`" in lines[name], (
                f"{variable} is missing in the line of {name} in docs/how-to/models.md"
            )
    for setting in SETTINGS:
        assert f"`{setting}`" in page, setting
    retried = {kind for kind in KINDS if Retry().should_retry(fault(kind, "x"), 1)}
    assert retried == set(re.findall(r"^\| `(\w+)` \| .* \| yes \|$", page, re.MULTILINE))


def test_configured_providers_have_settings_or_a_key() -> None:
    """Those of the settings, those with a key in the environment, and no others."""
    client = LLMClient(
        {"own": {"base_url": "http://127.0.0.1:1"}}, env={"ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": " "}
    )
    assert client.configured() == ("own", "anthropic")
    assert LLMClient(env={}).configured() == ()


def test_an_agent_takes_a_model_of_a_client_with_its_price() -> None:
    """`Agent(model=client.model(NAME, price=…))` reaches a server that no configuration names, and a budget of money
    holds it; without a price the budget refuses the call."""

    async def main() -> None:
        async with (
            MockServer({"replies": [{"text": "Hello"}]}) as server,
            LLMClient({"here": {"base_url": f"{server.url}/v1"}}) as client,
            lyra.Kernel() as kernel,
        ):
            priced = client.model("here/qwen-3", price={"input_usd_per_mtok": "10", "output_usd_per_mtok": "20"})
            reply = await kernel.run(Agent("a", model=priced, budget="$1.00"), "hi")
            assert (reply, server.requests[-1].model) == ("Hello", "qwen-3")
            used = reply.input_tokens * 10 + reply.output_tokens * 20
            assert reply.cost_usd == pytest.approx(used / 1e6)
            assert used > 0
            with pytest.raises(LyraError, match="price"):
                await kernel.run(Agent("b", model=client.model("here/qwen-3"), budget="$1.00"), "hi")
            assert await kernel.run(Agent("c", model=client.model("here/qwen-3")), "hi") == "Hello"
            with pytest.raises(ConfigError, match="output_usd_per_mtok"):
                client.model("here/x", price={"input_usd_per_mtok": 1})
            with pytest.raises(ConfigError, match="elsewhere"):
                client.model("elsewhere/x")

    run(main())
