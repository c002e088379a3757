"""Vertex: Gemini's wire at a project's address, with a token that google-auth fetched, once, off the loop."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lyra.core.message import Message
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, ModelError
from lyra.models.provider import Request
from lyra.models.providers.vertex import Vertex
from lyra.models.settings import ProviderSettings, settings_of
from tests.models.server import Reply, Server, run, sse

MODEL = "gemini-2.5-pro"
TOKEN = "ya29.planted-token-0123456789"
ASKING = Request(MODEL, (Message("user", "hello"),))
SAID = Reply(
    sse(
        {
            "candidates": [{"content": {"parts": [{"text": "hi"}], "role": "model"}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1},
        }
    )
)


@cache
def private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def token(value: str = TOKEN, seconds: int = 3600, **more: Any) -> Reply:
    return Reply.json({"access_token": value, "expires_in": seconds, "token_type": "Bearer"}, **more)


@pytest.fixture(autouse=True)
def _machine_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_QUOTA_PROJECT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A service account whose tokens come from the given address."""

    def write(url: str) -> None:
        data = {
            "type": "service_account",
            "project_id": "p1",
            "private_key_id": "k1",
            "private_key": private_key(),
            "client_email": "agent@p1.iam.gserviceaccount.com",
            "token_uri": f"{url}/token",
        }
        (tmp_path / "key.json").write_text(json.dumps(data))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))

    return write


def provider(url: str = "", **more: Any) -> Vertex:
    return Vertex(
        ProviderSettings(**{"name": "vertex", "base_url": url, "project": "p1", "region": "us-east1", **more})
    )


def failing(account: Any, *replies: Reply) -> ModelError:
    async def main() -> ModelError:
        async with Server(*replies) as server:
            account(server.url)
            ours = provider(server.url)
            with pytest.raises(ModelError) as caught:
                await ours.complete(ASKING)
            await ours.close()
            return caught.value

    error = run(main())
    assert TOKEN not in error.render() + repr(error) + str(error.fields)
    assert (error.provider, error.model) == ("vertex", MODEL)
    return error


@pytest.mark.parametrize(
    ("region", "host", "place"),
    [
        ("europe-west4", "europe-west4-aiplatform.googleapis.com", "europe-west4"),
        ("global", "aiplatform.googleapis.com", "global"),
        ("us", "aiplatform.us.rep.googleapis.com", "us"),
        ("eu", "aiplatform.eu.rep.googleapis.com", "eu"),
        ("", "aiplatform.googleapis.com", "global"),
    ],
)
def test_the_address_names_project_and_region(region, host, place):
    """And the region is global by default."""
    assert provider(region=region).url(ASKING) == (
        f"https://{host}/v1/projects/p1/locations/{place}/publishers/google/models/{MODEL}:streamGenerateContent?alt=sse"
    )


def test_the_project_is_needed():
    """The variable is named."""
    with pytest.raises(ConfigError, match="GOOGLE_CLOUD_PROJECT"):
        settings_of("vertex", env={})
    settings = settings_of("vertex", env={"GOOGLE_CLOUD_PROJECT": "p9", "GOOGLE_CLOUD_LOCATION": "asia-east1"})
    assert Vertex(settings).url(ASKING).startswith("https://asia-east1-aiplatform.googleapis.com/v1/projects/p9/")


def test_one_token_serves_all_calls(account):
    """Those who come while it is fetched wait for it; later ones find it."""

    async def main() -> list[Any]:
        async with Server(token(), SAID) as server:
            account(server.url)
            ours = provider(server.url)
            answers = await asyncio.gather(*(ours.complete(ASKING) for _ in range(5)))
            answers.append(await ours.complete(ASKING))
            await ours.close()
            assert {answer.text for answer in answers} == {"hi"}
            return server.requests

    asked = run(main())
    assert [sent_request.path for sent_request in asked].count("/token") == 1
    assert {sent_request.headers["authorization"] for sent_request in asked[1:]} == {f"Bearer {TOKEN}"}
    assert all(TOKEN not in sent_request.path + str(sent_request.body) for sent_request in asked)


def test_a_token_is_fetched_anew_before_it_expires(account):
    """One that has a minute left is not used any more."""

    async def main() -> list[str]:
        async with Server(token("t1", 60), SAID, token("t2", 3600), SAID) as server:
            account(server.url)
            ours = provider(server.url)
            for _ in range(3):
                await ours.complete(ASKING)
            await ours.close()
            return [
                sent_request.headers.get("authorization", "")
                for sent_request in server.requests
                if sent_request.path != "/token"
            ]

    assert run(main()) == ["Bearer t1", "Bearer t2", "Bearer t2"]


def test_the_loop_goes_on_while_a_token_is_fetched(account):
    """It is fetched in a thread."""

    async def main() -> int:
        ticks = 0
        async with Server(token(delay_s=0.2), SAID) as server:
            account(server.url)
            ours = provider(server.url)
            work = asyncio.create_task(ours.complete(ASKING))
            while not work.done():
                ticks += 1
                await asyncio.sleep(0.005)
            await work
            await ours.close()
        return ticks

    assert run(main()) > 10


def test_a_provider_serves_one_loop_after_another(account):
    """Locks and connections belong to a loop; a token does not."""
    ours = provider()

    async def main(*replies: Reply) -> None:
        async with Server(*replies) as server:
            account(server.url)
            ours.settings = ProviderSettings("vertex", base_url=server.url, project="p1")
            await asyncio.gather(*(ours.complete(ASKING) for _ in range(3)))
            await ours.close()

    run(main(token(), SAID))
    ours._credentials = None
    run(main(token(), SAID))


def test_the_token_is_hidden_in_what_the_server_says(account):
    """Even where it quotes it."""
    error = failing(account, token(), Reply.json({"error": {"code": 403, "message": f"no: {TOKEN}"}}, status=403))
    assert (error.kind, error.message) == ("auth", "no: ***")


def test_a_refused_account_is_a_wrong_key(account):
    """In Google's words, in one line."""
    error = failing(account, Reply.json({"error": "invalid_grant", "error_description": "Bad account"}, status=400))
    assert error.kind == "auth"
    assert "invalid_grant" in error.message


def test_what_is_no_token_is_told(account):
    """A web page, for instance."""
    error = failing(account, Reply(b"<html>log in</html>", headers={"content-type": "text/html"}))
    assert error.kind == "bad_response"


def test_a_token_that_still_works_is_used_where_no_new_one_is_to_be_had(account):
    """It is asked for early enough to fail now and then."""

    async def main() -> list[str]:
        refused = Reply.json({"error": "invalid_grant"}, status=400)
        async with Server(token("t1", 60), SAID, refused, SAID) as server:
            account(server.url)
            ours = provider(server.url)
            for _ in range(2):
                await ours.complete(ASKING)
            await ours.close()
            return [sent_request.headers.get("authorization", sent_request.path) for sent_request in server.requests]

    assert run(main()) == ["/token", "Bearer t1", "/token", "Bearer t1"]


def test_a_token_server_that_is_not_there(account):
    """Is no wrong key."""

    async def main() -> ModelError:
        account("http://127.0.0.1:1")
        ours = provider("http://127.0.0.1:1")
        with pytest.raises(ModelError) as caught:
            await ours.complete(ASKING)
        await ours.close()
        return caught.value

    assert run(main()).kind == "connection"


def test_no_credentials_are_a_named_error():
    """With the command that makes some."""

    async def main() -> ModelError:
        with pytest.raises(ModelError) as caught:
            await provider("http://127.0.0.1:1").complete(ASKING)
        return caught.value

    error = run(main())
    assert error.kind == "auth"
    assert "gcloud auth application-default login" in str(error.hint)


def test_without_google_auth_the_command_is_told(monkeypatch):
    """One sentence with the command."""
    for name in [name for name in sys.modules if name == "google.auth" or name.startswith("google.auth.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(ConfigError) as caught:
        run(provider("http://127.0.0.1:1").complete(ASKING))
    assert caught.value.hint == "pip install 'lyra-agents[vertex]'"


def test_a_key_is_sent_as_a_key_and_google_auth_is_not_asked(monkeypatch):
    """Where there is one."""
    monkeypatch.setitem(sys.modules, "google.auth", None)

    async def main() -> Any:
        async with Server(SAID) as server:
            ours = provider(server.url, api_key=Secret("vertex-key"))
            await ours.complete(ASKING)
            await ours.close()
            return server.requests[0]

    asked = run(main())
    assert asked.headers["x-goog-api-key"] == "vertex-key"
    assert "authorization" not in asked.headers


@pytest.mark.filterwarnings("ignore")
def test_googles_client_goes_to_the_same_address(account):
    """With the same token in the same header."""
    from google import genai
    from google.genai import types
    from google.oauth2.credentials import Credentials

    async def main() -> Any:
        async with Server(SAID) as server:
            client = genai.Client(
                vertexai=True,
                project="p1",
                location="us-east1",
                credentials=Credentials(token=TOKEN),
                http_options=types.HttpOptions(base_url=server.url, api_version="v1"),
            )
            async for _ in await client.aio.models.generate_content_stream(model=MODEL, contents="hello"):
                pass
            await client.aio.aclose()
            return server.requests[-1], provider(server.url).url(ASKING).removeprefix(server.url)

    asked, path = run(main(), 60)
    assert asked.path == path
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
