"""A client whose base URL does not lead to the gateway's paths is told so, in the shape of its vendor."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from lyra.server.gateway.routes import GATEWAY
from tests.server.gateway.support import serving_gateway
from tests.server.http.support import in_loop

LACKS = "the base URL of the client lacks /v1 at its end"
OPENAI_PATHS = ("/chat/completions", "/responses", "/embeddings")
ANTHROPIC_PATHS = ("/messages", "/messages/count_tokens", "/messages?beta=true")


@pytest.mark.parametrize("path", OPENAI_PATHS + ANTHROPIC_PATHS)
def test_a_base_url_without_v1_is_told(path: str) -> None:
    """One sentence of JSON, with a key and without one, also where the dashboard has a page of the same path."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key()
            for headers in ({"authorization": f"Bearer {key}"}, {"authorization": ""}, {"accept": "text/html"}):
                async with served.client(key) as client:
                    answer = await client.post(path, json={"model": "openai/gpt-5"}, headers=headers)
                assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
                body: dict[str, Any] = answer.json()
                kind = "not_found_error" if path in ANTHROPIC_PATHS else "invalid_request_error"
                assert (body["error"]["message"], body["error"]["type"]) == (LACKS, kind)
            assert not served.provider.received

    in_loop(main())


def test_an_unknown_path_names_the_known_ones() -> None:
    """Below /v1/, in the vendor's shape; also /v1 given twice, as by a base URL of Anthropic's client that ends so."""

    async def main() -> None:
        async with serving_gateway() as served:
            async with served.client(await served.key()) as client:
                for path in ("/v1/completions", "/v1/audio/speech", "/v1/v1/chat/completions"):
                    answer = await client.post(path, json={})
                    assert answer.status_code == 404, answer.text
                    message = answer.json()["error"]["message"]
                    for endpoint in GATEWAY:
                        assert endpoint.path in message or not endpoint.path.startswith("/v1/")
                    assert ("once too often" in message) == path.startswith("/v1/v1/")
                twice = await client.post("/v1/v1/messages", json={})
                assert twice.json()["type"] == "error"
                wrong = await client.get("/v1/messages")
                assert (wrong.status_code, wrong.json()["type"]) == (405, "error")
            agent = await served.operator.get("/chat/completions", headers={"accept": "text/html"})
            assert "lacks" not in agent.text  # the page of an agent of that name

    in_loop(main())


def test_the_vendors_libraries_show_the_sentence() -> None:
    """What a person sees who set the wrong base URL."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key()
            wrong = openai.AsyncOpenAI(base_url=served.url, api_key=key, max_retries=0)
            with pytest.raises(openai.NotFoundError, match=LACKS):
                await wrong.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
            twice = anthropic.AsyncAnthropic(base_url=f"{served.url}/v1", api_key=key, max_retries=0)
            with pytest.raises(anthropic.NotFoundError, match="has /v1 at its end, once too often"):
                await twice.messages.create(model="m", messages=[{"role": "user", "content": "x"}], max_tokens=5)
            await wrong.close()
            await twice.close()

    in_loop(main())
