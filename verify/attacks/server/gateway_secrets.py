"""Keys that the gateway knows, and every surface on which one might show.

Planted are a provider's keys and keys of the gateway, one in force and one revoked. The provider quotes the key that it
got in its refusals, in broken streams and in headers; clients send keys where they do not belong. Searched is everything
that comes back, the pages, records and metrics, the log, what OpenTelemetry exports, and each byte of the store.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx

from verify.attacks.scripted_agent import Attempts
from verify.attacks.server.exposed_secrets import Surfaces
from verify.attacks.server.listener import Listener
from verify.served import OPERATOR, ServedProcess

__all__ = ["run"]

_OPENAI: Final = "sk-proj-T7wq2Lr9ZcXm4Vb8Nn1Kd6Jh3Gf5"
_ANTHROPIC: Final = "plum.orchard.7731.lantern.echo.ferry"  # without a key's form
_READ: Final = (
    *("/", "/costs", "/costs.csv", "/processes", "/traces", "/settings", "/services", "/runs", "/inbox", "/figures"),
    *("/api/keys", "/api/processes?limit=1000", "/api/traces", "/api/costs", "/api/history?limit=1000", "/api/system"),
    *("/metrics", "/openapi.json", "/v1/models", "/healthz", "/readyz"),
)
_MODES: Final = ("whole", "stream", "refuse", "login", "fail", "break", "none")
_SAYS: Final = [{"role": "user", "content": "x"}]
# Only members that a key with a budget may send: another one is refused before the provider is asked.
_BODIES: Final[dict[str, dict[str, Any]]] = {
    "/v1/chat/completions": {"model": "openai/gpt-4o-mini", "messages": _SAYS, "max_tokens": 50},
    "/v1/responses": {"model": "openai/gpt-4o-mini", "input": "x", "max_output_tokens": 50},
    "/v1/messages": {"model": "anthropic/claude-sonnet-4-5", "messages": _SAYS, "max_tokens": 50},
    "/v1/embeddings": {"model": "openai/text-embedding-3-small", "input": "x"},
}
_STATUSES: Final = {"rich": 200, "free": 200, "poor": 402, "gone": 401}  # by the key, where the provider answers well


class _QuotingProvider:
    """A provider that says the key which it got wherever it can, but in an answer."""

    def __init__(self) -> None:
        self.asked = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> _QuotingProvider:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
            self.asked += 1
            lines = [line for line in head.split(b"\r\n") if line.lower().startswith((b"authorization", b"x-api-key"))]
            writer.write(_answer(json.loads(body), b" ".join(lines)))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _answer(asked: dict[str, Any], quoted: bytes) -> bytes:
    mode = str(asked.get("user"))
    status = {"refuse": b"400 Bad", "login": b"401 No", "fail": b"500 Failed"}.get(mode, b"200 OK")
    message = f"not with {quoted.decode()}"
    error = {"type": "error", "error": {"type": "invalid_request_error", "code": message, "message": message}}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "input_tokens": 5, "output_tokens": 5}
    media, data = b"application/json", json.dumps(error if status != b"200 OK" else {"usage": usage}).encode()
    if asked.get("stream") and status == b"200 OK":
        media = b"text/event-stream"
        data = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
        data += b"data: %s\n\n" % json.dumps(error).encode() if mode == "break" else b"data: [DONE]\n\n"
    if mode == "none":
        return b""
    head = b"HTTP/1.1 %s\r\ncontent-type: %s\r\nx-quoted: %s\r\nx-request-id: r\r\nconnection: close\r\n\r\n"
    return head % (status, media, quoted) + data


def run() -> Attempts:
    """Plant, work, search: with the log as text, then as JSON."""
    attempts = Attempts(0, [])
    for log_format in ("text", "json"):
        with tempfile.TemporaryDirectory(prefix="lyra-gateway-keys-") as name:
            surfaces = asyncio.run(_search(Path(name), log_format))
        attempts += Attempts(surfaces.count, [f"log {log_format}: {line}" for line in sorted(set(surfaces.found))])
    return attempts


async def _search(folder: Path, log_format: str) -> Surfaces:
    (folder / "nothing.py").write_text("def setup(kernel):\n    pass\n")
    async with _QuotingProvider() as provider:
        with Listener() as collector:
            env = {
                "OPENAI_API_KEY": _OPENAI,
                "OPENAI_BASE_URL": f"{provider.url}/v1",
                "ANTHROPIC_API_KEY": _ANTHROPIC,
                "ANTHROPIC_BASE_URL": provider.url,
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "LYRA_TOKEN": "",
            }
            flags = ["--gateway", "--log-level", "trace", "--log-format", log_format]
            db = str(folder / "store.db")
            served = ServedProcess(folder, db, load=folder / "nothing.py", flags=flags, env=env)
            try:
                await served.start()
                async with httpx.AsyncClient(base_url=f"http://{served.http}", timeout=60) as client:
                    keys = await _create_keys(client)
                    secrets = {
                        "a provider's key": _OPENAI,
                        "a provider's key without a key's form": _ANTHROPIC,
                        "the operator's token": OPERATOR,
                        **{f"the key {name}": key for name, key in keys.items()},
                    }
                    surfaces = Surfaces(secrets)
                    await _work(client, surfaces, keys)
                await served.stop()
            finally:
                served.close()
            _search_files(surfaces, folder, served.errors, collector.bodies)
            if provider.asked < 2 * len(_MODES) * len(_BODIES):  # for the keys rich and free
                surfaces.found.append(f"the provider was asked {provider.asked} times: its words were not tried")
    return surfaces


def _search_files(surfaces: Surfaces, folder: Path, log: str, exported: list[bytes]) -> None:
    for data in exported:
        surfaces.look("OpenTelemetry", data)
    surfaces.look("the log", log)
    for path in folder.glob("store.db*"):
        surfaces.look(f"the file {path.name}", path.read_bytes())
    if not exported or not log or not (folder / "store.db").stat().st_size:
        surfaces.found.append("the log, the store or what is exported is empty: they were not searched")


async def _create_keys(client: httpx.AsyncClient) -> dict[str, str]:
    operator = {"authorization": f"Bearer {OPERATOR}"}
    keys = {}
    for name, budget in {"rich": "$5", "free": None, "poor": "$0.000001", "gone": "$5"}.items():
        made = await client.post("/api/keys", json={"name": name, "budget": budget}, headers=operator)
        keys[name] = str(made.json()["key"])
    revoked = await client.delete("/api/keys/gone", headers=operator)
    assert revoked.status_code == 200, revoked.text
    return keys


async def _work(client: httpx.AsyncClient, surfaces: Surfaces, keys: dict[str, str]) -> None:
    operator = {"authorization": f"Bearer {OPERATOR}"}

    async def ask(method: str, path: str, headers: dict[str, str], **options: Any) -> int:
        response = await client.request(method, path, headers=headers, **options)
        mode = (options.get("json") or {}).get("user", "")
        name = f"{method} {path.partition('?')[0][:40]} {mode}".rstrip()
        surfaces.look(name, response.content)
        surfaces.look(f"headers of {name}", str(response.headers))
        return response.status_code

    for path, plain in _BODIES.items():
        for key_name, key in keys.items():
            for mode in _MODES:
                body = {**plain, "user": mode, "stream": mode in ("stream", "break")}
                status = await ask("POST", path, {"x-api-key": key}, json=body)
                if mode == "whole" and status != _STATUSES[key_name]:
                    surfaces.found.append(f"the key {key_name} got {status} at {path}: that way was not tried")
        for header in (f"Bearer {keys['rich']}x", f"Basic {keys['rich']}", keys["rich"]):
            await ask("POST", path, {"authorization": header}, json=plain)
    rich = {"x-api-key": keys["rich"]}
    await ask("GET", f"/v1/models?key={keys['free']}", rich)
    await ask("GET", "/v1/models", {**rich, "cookie": f"token={keys['free']}"})
    for path in _READ:
        await ask("GET", path, operator)
    for name in keys:
        await ask("GET", f"/api/keys/{name}", operator)
    traces = (await client.get("/api/traces", headers=operator)).json().get("traces", [])
    for trace in traces[:100]:
        await ask("GET", f"/api/traces/{trace['trace_id']}", operator)
        await ask("GET", f"/traces/{trace['trace_id']}", operator)
    listed = (await client.get("/api/processes?limit=1000", headers=operator)).json()
    for process in listed.get("processes", [])[:40]:
        await ask("GET", f"/processes/{process['pid']}", operator)
