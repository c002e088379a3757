"""No token, key or secret is on any surface: answers, streams, the journal, logs, metrics, the process list."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.models.sim import SimProvider
from lyra.server.http.routes import ENDPOINTS
from tests.server.http.support import ADA, BOB, OPERATOR, Served, in_loop, serving
from tests.server.http.test_guards import filled

KEY = "sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyz"


def telling() -> Agent[Any]:
    """An agent whose model says a key of its provider."""

    def reply(request: Any) -> str:
        return f"the key is {KEY}, and you said {request.messages[-1].text}"

    return Agent("echo", model=SimProvider(script=reply))


def test_no_secret_is_on_any_surface(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys in prompts and answers are masked; tokens and secrets of hooks are nowhere but where they were given out."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    secrets: list[str] = []

    async def use(parts: Served) -> None:
        chat = {"message": f"my key is {KEY}", "session_id": "s"}
        shown.append((await parts.ada.post("/api/agents/echo/chat", json=chat)).text)
        shown.append((await parts.ada.post("/api/agents/echo/chat/stream", json=chat)).text)
        question = [{"role": "user", "content": f"what is {KEY}?"}]
        for path, more in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 9})):
            for stream in (False, True):
                body = {"model": "echo", "messages": question, "stream": stream, **more}
                shown.append((await parts.ada.post(path, json=body)).text)
        hook = (await parts.ada.post("/api/hooks", json={"agent": "echo"})).json()
        secrets.append(hook["secret"])
        wrong = f"Bearer {OPERATOR}x"
        shown.append((await parts.stranger.get("/api/processes", headers={"authorization": wrong})).text)
        for client in (parts.operator, parts.ada):
            for endpoint in ENDPOINTS:
                if endpoint.method == "GET" and endpoint.name != "events.follow":
                    path = filled(endpoint.path).replace("/api/sessions/some-id", "/api/sessions/s")
                    answer = await client.get(path)
                    shown.append(f"{dict(answer.headers)} {answer.text}")

    async def main() -> None:
        async with serving(kernel=Kernel(str(tmp_path / "lyra.db"), programs=[telling()])) as parts:
            await use(parts)
            await asyncio.sleep(0)

    in_loop(main())
    journal = b"".join(file.read_bytes() for file in tmp_path.iterdir()).decode("latin-1")
    surfaces = {"answers": "\n".join(shown), "journal": journal, "log": caplog.text}
    for name, text in surfaces.items():
        for secret in (KEY, OPERATOR, ADA, BOB, *secrets):
            assert secret not in text, (name, secret)
