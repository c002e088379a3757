"""Clients and providers that mean harm: what they send is refused or passes as data, and stays on its own side."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from lyra.agents.forks.change import StepChange
from lyra.agents.forks.fork import fork_run
from lyra.server.owners import make_owned_pid
from lyra.store.sqlite import SqliteStore
from tests.server.gateway.support import (
    ANTHROPIC_KEY,
    OPENAI_KEY,
    SSE,
    Received,
    Reply,
    ServedGateway,
    chat_answer,
    chat_stream,
    serving_gateway,
)
from tests.server.http.support import ADA, in_loop

PATH = "/v1/chat/completions"
CHAT: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 50,
}


# ---------------------------------------------------------------- headers
CLIENT_HEADERS = {
    "cookie": "session=client-cookie-value",
    "x-forwarded-for": "client-address-value",
    "forwarded": "for=client-address-value",
    "proxy-authorization": "Basic client-proxy-value",
    "te": "trailers, client-te-value",
    "upgrade": "client-upgrade-value",
    "connection": "keep-alive, x-smuggled",
    "keep-alive": "timeout=client-keep-value",
    "x-smuggled": "client-smuggled-value",
    "x-goog-api-key": "client-google-value",
    "api-key": "client-azure-value",
    "openai-organization": "client-organization-value",
    "openai-project": "client-project-value",
    "user-agent": "client-agent-value",
    "referer": "http://client-referer-value/",
    "x-amz-security-token": "client-amazon-value",
}
PROVIDER_HEADERS = {
    "set-cookie": "provider-cookie-value=1",
    "server": "provider-server-value",
    "x-internal-cluster": "provider-internal-value",
    "via": "1.1 provider-via-value",
    "openai-organization": "provider-organization-value",
    "cf-ray": "provider-ray-value",
    "www-authenticate": "Bearer provider-challenge-value",
    "location": "http://provider-location-value/",
    "access-control-allow-origin": "*",
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_headers_of_the_client_and_of_the_provider_stay_on_their_sides(path: str) -> None:
    """Of the client's headers those pass that the API reads; its key, cookies and addresses do not. Of the provider's,
    its cookies and its inner names do not."""
    vendor = "openai" if "chat" in path else "anthropic"
    body = CHAT if vendor == "openai" else {**CHAT, "model": "anthropic/claude-sonnet-4-5", "max_tokens": 50}

    async def main() -> None:
        async with serving_gateway(Reply((chat_answer(),), headers=PROVIDER_HEADERS)) as served:
            key = await served.key()
            headers = {**CLIENT_HEADERS, "x-api-key": key, "openai-beta": "one", "anthropic-beta": "two"}
            async with httpx.AsyncClient(base_url=served.url, headers=headers) as client:
                answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            received = served.provider.received[0]
            sent = json.dumps(received.headers)
            assert "client-" not in sent
            assert key not in sent
            own = {"openai": ("authorization", f"Bearer {OPENAI_KEY}"), "anthropic": ("x-api-key", ANTHROPIC_KEY)}
            assert received.headers[own[vendor][0]] == own[vendor][1]
            assert ("x-api-key" in received.headers) == (vendor == "anthropic")
            assert received.headers["host"] in served.provider.url
            assert received.headers["anthropic-beta"] == "two"
            assert "provider-" not in str(answer.headers)
            assert "access-control-allow-origin" not in answer.headers

    in_loop(main())


def test_a_key_of_the_clients_own_is_never_sent_on() -> None:
    """Where two keys come, the gateway's own names the caller, and neither goes to the provider; a provider's key alone
    is refused."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key()
            both = {"authorization": f"Bearer {key}", "x-api-key": "sk-foreign-key-0123456789"}
            async with httpx.AsyncClient(base_url=served.url) as client:
                answer = await client.post(PATH, json=CHAT, headers=both)
                assert answer.status_code in (200, 401)
                alone = {"authorization": "Bearer sk-foreign-key-0123456789"}
                assert (await client.post(PATH, json=CHAT, headers=alone)).status_code == 401
            assert all("foreign" not in str(received.headers) for received in served.provider.received)

    in_loop(main())


# ---------------------------------------------------------------- names
@pytest.mark.parametrize(
    "model",
    [
        "openai/../gpt-4o-mini", "openai//gpt-4o-mini", "openai/gpt-4o-mini/../../admin", "openai/gpt-4o-mini?x=1",
        "openai/gpt\r\nx: y", "openai/жук", "openai/\U0001f600", "openai/%2e%2e%2f", "/", "//", "openai/", "/gpt",
        "OPENAI/gpt-4o-mini", "other/a/b/c", "http://evil.example/x", "openai/" + "x" * 290, "agent/../x", "agent/",
        "file:///etc/passwd", "other/\u202egpt",
    ],
)  # fmt: skip
def test_names_of_models_are_data(model: str) -> None:
    """A strange name is refused, or goes to the configured provider's usual path as a name; never to another place."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key()
            async with served.client(key) as client:
                answer = await client.post(PATH, json={**CHAT, "model": model})
            assert answer.status_code in (200, 400, 403, 404), answer.text
            for received in served.provider.received:
                assert received.path == "/v1/chat/completions"
                assert received.data["model"] in model

    in_loop(main())


def test_a_pattern_holds_for_strange_spellings() -> None:
    """A key for one model does not call another by case, spaces, escapes or a second member."""
    others = ["openai/gpt-5", "OpenAI/gpt-5", " openai/gpt-5", "openai/gpt-5 ", "openai/gpt-4o-mini/../gpt-5", "gpt-5"]

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(models=["openai/gpt-4o-mini"])
            async with served.client(key) as client:
                for model in others:
                    answer = await client.post(PATH, json={**CHAT, "model": model})
                    assert answer.status_code in (400, 403, 404), (model, answer.text)
                twice = b'{"model": "openai/gpt-4o-mini", "messages": [], "model": "openai/gpt-5"}'
                assert (await client.post(PATH, content=twice)).status_code == 403
                escaped = b'{"mod\\u0065l": "openai/gpt-5", "messages": []}'
                assert (await client.post(PATH, content=escaped)).status_code == 403
            assert served.provider.received == []

    in_loop(main())


# ---------------------------------------------------------------- streams
async def _settled(served: ServedGateway) -> dict[str, Any]:
    while (view := await served.view())["reserved_micro_usd"]:
        await asyncio.sleep(0.01)
    return view


@pytest.mark.slow
def test_a_client_that_does_not_read_holds_the_provider_back() -> None:
    """The stream of a slow client waits at the provider: the gateway keeps a bounded part of it."""

    async def main() -> None:
        written = 0

        def reply(received: Received) -> Reply:
            def pieces() -> Any:
                nonlocal written
                piece = chat_stream("x" * 4_000)[1]
                for _ in range(6_000):
                    written += len(piece)
                    yield piece

            return Reply(pieces(), headers=SSE)

        async with serving_gateway(reply) as served:
            key = await served.key(budget="$5")
            reader, writer = await asyncio.open_connection(served.address.host, served.address.port, limit=1_024)
            body = json.dumps({**CHAT, "stream": True}).encode()
            head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\n"
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            await reader.read(100)
            before = -1
            while written != before:  # until nothing moves any more
                before = written
                await asyncio.sleep(0.5)
            assert 0 < written < 16 * 2**20  # socket buffers of both connections, and what the gateway keeps
            async with served.client(await served.key("other")) as client:
                served.provider.reply = Reply((chat_answer(),))
                assert (await client.post(PATH, json=CHAT)).status_code == 200  # others are served meanwhile
            writer.close()
            view = await _settled(served)
            assert view["spent_micro_usd"] <= 5_000_000
            assert view["calls"] == 1

    in_loop(main())


@pytest.mark.slow
def test_a_stream_without_an_end_of_line_is_bounded() -> None:
    """A provider whose event never ends, or is no event, does not make the gateway keep all of it; the client gets it
    or an error, and the next call works."""

    async def main() -> None:
        for piece in (b"data: " + b"x" * 60_000, b"\x00" * 60_000, b"data: {\n" * 8_000):
            reply = Reply((piece,) * 100, headers=SSE)
            async with serving_gateway(reply) as served:
                key = await served.key(budget="$5")
                async with served.client(key) as client:
                    try:
                        answer = await client.post(PATH, json={**CHAT, "stream": True})
                        assert answer.status_code in (200, 502), answer.text[:200]
                    except httpx.HTTPError:
                        pass
                    await _settled(served)
                    served.provider.reply = Reply((chat_answer(),))
                    assert (await client.post(PATH, json=CHAT)).status_code == 200

    in_loop(main())


@pytest.mark.parametrize(
    "body",
    [
        b"", b"not json", b"{}", b"[]", b'{"usage": 5}', b'{"usage": {"prompt_tokens": -5, "completion_tokens": 1e99}}',
        b'{"usage": {"prompt_tokens": "many"}}', b'{"usage": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", b"\xff" * 100,
    ],
)  # fmt: skip
def test_a_strange_answer_passes_and_never_lowers_what_is_spent(body: bytes) -> None:
    """An answer whose usage cannot be read is charged by its bounds: a provider's nonsense gives no money back."""

    async def main() -> None:
        async with serving_gateway(Reply((body,))) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=CHAT)
            assert answer.status_code in (200, 502), answer.text
            view = await _settled(served)
            assert 0 < view["spent_micro_usd"] <= 1_000_000 or answer.status_code == 502

    in_loop(main())


# ---------------------------------------------------------------- the process of a key
def test_a_key_is_not_copied_by_a_fork_of_its_process(tmp_path: Path) -> None:
    """Its user cannot fork it into a second budget, and a fork from elsewhere is no key: revoked is revoked, also after
    a restart."""
    store = str(tmp_path / "run.db")

    async def copy_and_revoke() -> str:
        async with serving_gateway(store=store) as served:
            made = (await served.operator.post("/api/keys", json={"name": "k", "user": "ada", "budget": "$1"})).json()
            pid = make_owned_pid("key", "ada", made["id"])
            async with served.client(ADA) as ada:
                assert (await ada.post(f"/api/runs/{pid}/fork", json={"at": 1})).status_code == 409
            reader = SqliteStore(store, writes=False)
            try:
                fork = await fork_run(served.kernel, reader, pid, 1, StepChange())
            finally:
                reader.close()
            copy = served.kernel.processes[fork]
            while copy.exit is None:
                await asyncio.sleep(0.01)
            assert (await served.gateway.keys.get("k")).process.pid == pid
            assert (await served.operator.delete("/api/keys/k")).status_code == 200
            return str(made["key"])

    async def ask(key: str) -> None:
        async with serving_gateway(store=store) as served, served.client(key) as program:
            assert (await program.get("/v1/models")).status_code == 401

    in_loop(ask(in_loop(copy_and_revoke())))
