"""Webhooks: events posted to a URL, signed and tried again; and what others send, signed, to agents and processes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lyra.core.policies.retry import Backoff, Retry
from lyra.server.http.webhooks import deliveries
from lyra.server.http.webhooks.deliveries import SIGNATURE, is_signed, secret_of, server_key, signature
from tests.server.http.support import Served, echo, in_loop, served, serving

KINDS = ["process.created", "process.terminated"]


class Receiver:
    """A server that keeps what is posted to it; its first answers have the statuses of `failures`."""

    def __init__(self) -> None:
        self.posts: list[tuple[dict[str, str], bytes]] = []
        self.failures: list[int] = []
        self.came = asyncio.Event()
        self.place = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
        except asyncio.IncompleteReadError:  # the server that posts was stopped in the middle
            writer.close()
            return
        status = self.failures.pop(0) if self.failures else 200
        if status == 200:
            self.posts.append((headers, body))
            self.came.set()
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        writer.close()

    async def wait(self, count: int) -> list[dict[str, Any]]:
        while len(self.posts) < count:
            self.came.clear()
            await self.came.wait()
        return [json.loads(body) for _, body in self.posts]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    receiver.place = f"{host}:{port}"
    async with server:
        yield receiver


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_RETRY", Retry(max_attempts=4, backoff=Backoff(initial_s=0.01, max_s=0.02)))


def test_events_of_the_users_processes_are_posted_and_signed() -> None:
    """The receiver checks the signature with the secret that was shown once; another user's events are not posted."""

    async def main() -> None:
        async with receiving() as receiver, serving(inside=(receiver.place,)) as parts:
            body = {"url": f"http://{receiver.place}/in", "kinds": KINDS}
            added = await parts.ada.post("/api/webhooks", json=body)
            assert added.status_code == 201, added.text
            parts.kernel.submit("his", user_id="bob")
            parts.kernel.submit("hers", user_id="ada")
            parts.kernel.terminate("hers")
            events = await receiver.wait(2)
            assert [(event["kind"], event["pid"]) for event in events] == [(kind, "hers") for kind in KINDS]
            headers, posted = receiver.posts[0]
            assert is_signed(added.json()["secret"], headers, posted, parts.kernel.clock.now())
            assert not is_signed("another", headers, posted, parts.kernel.clock.now())
            assert headers["x-lyra-event"] == "process.created"
            while (await parts.ada.get("/api/webhooks")).json()["webhooks"][0]["delivered"] != 2:
                await asyncio.sleep(0.01)
            assert (await parts.bob.get("/api/webhooks")).json()["webhooks"] == []
            path = f"/api/webhooks/{added.json()['webhook_id']}"
            assert (await parts.bob.delete(path)).status_code == 404
            assert (await parts.ada.delete(path)).status_code == 200
            parts.kernel.submit("more", user_id="ada")
            await asyncio.sleep(0.05)
            assert len(receiver.posts) == 2

    in_loop(main())


def test_a_delivery_is_tried_again_while_the_receiver_fails_and_then_given_up() -> None:
    async def main() -> None:
        async with receiving() as receiver, serving(inside=(receiver.place,)) as parts:
            receiver.failures = [500, 503, 429]
            body = {"url": f"http://{receiver.place}/in", "kinds": ["process.created"]}
            await parts.ada.post("/api/webhooks", json=body)
            parts.kernel.submit("a", user_id="ada")
            await receiver.wait(1)
            receiver.failures = [500] * 4
            parts.kernel.submit("b", user_id="ada")
            state = next(iter(parts.face.app.parts.deliveries._states.values()))
            while state.failed < 1:
                await asyncio.sleep(0.01)
            receiver.failures = [404]
            parts.kernel.submit("c", user_id="ada")
            while state.failed < 2:
                await asyncio.sleep(0.01)
            assert not receiver.failures
            assert "404" in (await parts.ada.get("/api/webhooks")).json()["webhooks"][0]["last_error"]
            parts.kernel.submit("d", user_id="ada")
            assert [event["pid"] for event in await receiver.wait(2)] == ["a", "d"]

    in_loop(main())


def test_a_webhook_goes_on_after_a_restart_and_its_secret_is_in_no_file(tmp_path: Path) -> None:
    store = tmp_path / "lyra.db"

    async def main() -> str:
        async with receiving() as receiver:
            async with serving(store=str(store), inside=(receiver.place,)) as parts:
                body = {"url": f"http://{receiver.place}/in", "kinds": ["process.created"]}
                added = (await parts.ada.post("/api/webhooks", json=body)).json()
                await parts.kernel.submit("a", user_id="ada")
                await receiver.wait(1)
            async with serving(store=str(store), inside=(receiver.place,)) as parts:
                while not (await parts.ada.get("/api/webhooks")).json()["webhooks"]:
                    await asyncio.sleep(0.01)
                await parts.kernel.submit("b", user_id="ada")
                await receiver.wait(2)
                headers, posted = receiver.posts[1]
                assert is_signed(added["secret"], headers, posted, parts.kernel.clock.now())
            return str(added["secret"])

    secret = in_loop(main())
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()


@served()
async def test_a_webhook_reaches_no_address_inside(parts: Served) -> None:
    """Refused when it is added, whatever the kind of address; so are unknown events and no events."""
    for url in ("http://127.0.0.1:1/", "http://localhost/", "http://169.254.169.254/x", "http://[::1]/", "ftp://x.org"):
        refused = await parts.ada.post("/api/webhooks", json={"url": url, "kinds": KINDS})
        assert refused.status_code == 403, (url, refused.text)
    for kinds in ([], ["no.such.kind"]):
        refused = await parts.ada.post("/api/webhooks", json={"url": "https://example.org/", "kinds": kinds})
        assert refused.status_code == 400


# ---------------------------------------------------------------- incoming


async def listener(ctx: Any) -> Any:
    return await ctx.receive()


@served(echo())
async def test_what_others_send_reaches_a_process_or_an_agent(parts: Served) -> None:
    """Signed with the secret of the hook, in Lyra's form or in GitHub's; no token is needed."""
    handle = parts.kernel.spawn(listener, pid="listener")
    hook = (await parts.operator.post("/api/hooks", json={"pid": "listener"})).json()
    body = b'{"action": "opened"}'
    mac = hmac.new(hook["secret"].encode(), body, hashlib.sha256).hexdigest()
    sent = await parts.stranger.post(hook["path"], content=body, headers={"x-hub-signature-256": f"sha256={mac}"})
    assert sent.status_code == 202, sent.text
    assert (await handle.wait()).result == {"hook": hook["hook_id"], "body": {"action": "opened"}}
    hook = (await parts.ada.post("/api/hooks", json={"agent": "echo"})).json()
    header = signature(hook["secret"], b"the build failed", parts.kernel.clock.now())
    sent = await parts.stranger.post(hook["path"], content=b"the build failed", headers={SIGNATURE: header})
    session_id = sent.json()["session_id"]
    while (await parts.ada.get(f"/api/runs/{session_id}")).json()["status"] == "running":
        await asyncio.sleep(0.01)
    shown = (await parts.ada.get(f"/api/sessions/{session_id}")).json()
    assert shown["messages"][-1]["text"] == "the build failed"
    assert parts.kernel.taint.is_tainted(shown["pid"])
    assert (await parts.bob.get(f"/api/sessions/{session_id}")).status_code == 404


@served(echo())
async def test_a_hook_takes_nothing_that_is_not_signed_for_it(parts: Served) -> None:
    """A wrong, old or missing signature, another hook's secret, an unknown or removed hook: the same 401."""
    hook = (await parts.ada.post("/api/hooks", json={"agent": "echo"})).json()
    other = (await parts.ada.post("/api/hooks", json={"agent": "echo"})).json()
    now = parts.kernel.clock.now()
    right = signature(hook["secret"], b"x", now)
    wrong = [
        {},
        {SIGNATURE: right.replace("v1=", "v1=0")},
        {SIGNATURE: signature(hook["secret"], b"y", now)},
        {SIGNATURE: signature(hook["secret"], b"x", now - 3600)},
        {SIGNATURE: signature(other["secret"], b"x", now)},
        {SIGNATURE: "t=x,v1="},
        {"x-hub-signature-256": "sha256=00"},
        {"authorization": "Bearer wrong"},
    ]
    for headers in wrong:
        assert (await parts.stranger.post(hook["path"], content=b"x", headers=headers)).status_code == 401, headers
    assert (await parts.stranger.post("/hooks/none", content=b"x", headers={SIGNATURE: right})).status_code == 401
    assert (await parts.stranger.post(hook["path"], content=b"x", headers={SIGNATURE: right})).status_code == 202
    assert (await parts.bob.delete(f"/api/hooks/{hook['hook_id']}")).status_code == 404
    assert (await parts.ada.delete(f"/api/hooks/{hook['hook_id']}")).status_code == 200
    assert (await parts.stranger.post(hook["path"], content=b"x", headers={SIGNATURE: right})).status_code == 401
    assert [row["hook_id"] for row in (await parts.ada.get("/api/hooks")).json()["hooks"]] == [other["hook_id"]]


@served(echo())
async def test_a_hook_is_for_what_is_the_callers(parts: Served) -> None:
    parts.kernel.submit("his", user_id="bob")
    for wrong, status in (({"pid": "his"}, 404), ({"pid": "none"}, 404), ({"agent": "none"}, 404), ({}, 400)):
        assert (await parts.ada.post("/api/hooks", json=wrong)).status_code == status


def test_the_key_of_the_server_is_made_once_and_private(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    key = server_key(env)
    assert server_key(env) == key
    (file,) = tmp_path.rglob("webhook-key")
    assert file.stat().st_mode & 0o077 == 0
    assert secret_of(key, "a") != secret_of(key, "b")
