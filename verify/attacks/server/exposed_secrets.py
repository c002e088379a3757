"""Secrets that a server knows, and every surface on which one might show.

Planted are provider keys (one with a key's form, one without), the tokens, the password of the store's URL and the key
of TLS. Tools print them, providers and stages fail with them in their words, clients send them where they do not belong.
Everything that comes back is searched: answers and headers of HTTP, events of streams, statuses and trailers of gRPC,
metrics, the OpenAPI document, history, the log as text and as JSON, and what is exported by OpenTelemetry.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from verify.attacks.scripted_agent import Attempts
from verify.attacks.server import planted
from verify.attacks.server.listener import Listener
from verify.served import OPERATOR, USER_TOKEN, ServedProcess
from verify.servers import PostgresServer, postgres_missing

__all__ = ["run", "spellings"]

_FORMED: Final = "sk-ant-api03-q7RtZ2vX9mKd5LwPn4Hs-8YcBj_3Ge"
_PLAIN: Final = "plum.orchard.7731.lantern.echo.ferry"
_PASSWORD: Final = "Xw9-store-password-77"  # noqa: S105 - planted
_WRONG_TOKEN: Final = "wrong-token-Kq82hfn3vPz61"  # noqa: S105 - planted
_AGENTS: Final = ("teller", "failer", "refused", "refused_too")
_READ: Final = (
    "/api/processes?limit=1000",
    "/api/agents",
    "/api/sessions",
    "/api/pipelines",
    "/api/interrupts",
    "/api/traces",
    "/api/costs",
    "/api/services",
    "/api/system",
    "/api/history?limit=1000",
    "/v1/models",
    "/metrics",
    "/openapi.json",
    "/healthz",
    "/readyz",
    f"/api/processes?user_id={_WRONG_TOKEN}",
    f"/api/{_WRONG_TOKEN}",
)


class Surfaces:
    """Texts that the server told, by the surface, and the secrets in them."""

    def __init__(self, secrets: dict[str, str]) -> None:
        self._secrets = {name: spellings(secret) for name, secret in secrets.items()}
        self.count = 0
        self.found: list[str] = []

    def look(self, surface: str, text: str | bytes) -> None:
        self.count += 1
        shown = text if isinstance(text, str) else text.decode("latin-1")
        for name, spelled in self._secrets.items():
            if any(spelling in shown for spelling in spelled):
                self.found.append(f"{surface} shows {name}")


def spellings(secret: str) -> list[str]:
    """A secret as it is, its halves, and in base64 and hex; parts of at least ten characters."""
    half = max(10, len(secret) // 2)
    encoded = [base64.b64encode((" " * pad + secret).encode()).decode()[4:-4] for pad in range(3)]
    return [secret, secret[:half], secret[-half:], secret.encode().hex(), *encoded]


def run() -> Attempts:
    """Plant, work, search: with the log as text on SQLite, then with JSON on PostgreSQL where there is one."""
    attempts = Attempts(0, [])
    for log_format in ("text", "json"):
        with tempfile.TemporaryDirectory(prefix="lyra-exposed-") as name, _store(Path(name), log_format) as db:
            surfaces = asyncio.run(_search(Path(name), db, log_format))
        attempts += Attempts(surfaces.count, [f"log {log_format}: {line}" for line in sorted(set(surfaces.found))])
    return attempts + asyncio.run(_failed_starts())


@contextmanager
def _store(folder: Path, log_format: str) -> Iterator[str]:
    if log_format == "text" or postgres_missing():
        yield str(folder / "store.db")
        return
    with PostgresServer() as database:
        yield f"{database.url}&password={_PASSWORD}"


async def _search(folder: Path, db: str, log_format: str) -> Surfaces:
    tls_key = _make_certificate(folder)
    secrets = {
        "a provider's key": _FORMED,
        "a provider's key without a key's form": _PLAIN,
        "the operator's token": OPERATOR,
        "a user's token": USER_TOKEN,
        "the password of the store": _PASSWORD,
        "a token that is not known": _WRONG_TOKEN,
        "the key of TLS": tls_key,
    }
    surfaces = Surfaces(secrets)
    with Listener() as collector, Listener(quotes=True) as provider:
        env = {
            "ANTHROPIC_API_KEY": _FORMED,
            "OPENAI_API_KEY": _PLAIN,
            "ANTHROPIC_BASE_URL": provider.url,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "LYRA_TOKEN": "",
        }
        flags = ["--log-level", "trace", "--log-format", log_format]
        flags += ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]
        served = ServedProcess(folder, db, load=Path(planted.__file__), flags=flags, env=env)
        try:
            await served.start()
            context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
            async with httpx.AsyncClient(base_url=f"https://{served.http}", verify=context, timeout=60) as client:
                await _over_http(client, surfaces)
            await _over_grpc(served.grpc, (folder / "cert.pem").read_bytes(), surfaces)
            await served.stop()
        finally:
            served.close()
        for data in collector.bodies:
            surfaces.look("OpenTelemetry", data)
        if not collector.bodies:
            surfaces.found.append("nothing was exported by OpenTelemetry")
        if not any(_FORMED.encode() in data for data in provider.heads):
            surfaces.found.append("the provider was not asked: its refusal was not tried")
    if "about to fail with" not in served.errors:
        surfaces.found.append("the log of the server was not searched: it does not have the planted line")
    surfaces.look("the log", served.errors)
    return surfaces


async def _over_http(client: httpx.AsyncClient, surfaces: Surfaces) -> None:
    operator = {"authorization": f"Bearer {OPERATOR}", "x-user-id": "ada"}

    async def ask(method: str, path: str, *, headers: dict[str, str] = operator, **options: Any) -> httpx.Response:
        response = await client.request(method, path, headers=headers, **options)
        surfaces.look(f"{method} {path.partition('?')[0][:40]}", response.content)
        surfaces.look(f"headers of {method} {path.partition('?')[0][:40]}", str(response.headers))
        return response

    async with asyncio.TaskGroup() as group:
        feed = group.create_task(_follow(client, "/api/events", operator))
        await asyncio.sleep(0.3)
        for agent in _AGENTS:
            await ask("POST", f"/api/agents/{agent}/chat", json={"message": "go", "session_id": f"s-{agent}"})
            stream = await ask("POST", f"/api/agents/{agent}/chat/stream", json={"message": "go"})
            surfaces.look("a stream", stream.content)
            body = {"model": agent, "messages": [{"role": "user", "content": "go"}], "max_tokens": 50}
            await ask("POST", "/v1/chat/completions", json=body)
            await ask("POST", "/v1/messages", json=body)
            await ask("GET", f"/api/sessions/s-{agent}")
        for stage in ("raising", "refusing"):
            pipeline = {"name": stage, "agents": [{"name": stage}]}
            started = await ask("POST", "/api/pipelines", json={"pipeline": pipeline, "input": "x"})
            run = f"/api/pipelines/{started.json()['run_id']}"
            await ask("GET", f"{run}/events")
            await ask("GET", f"{run}/result?wait_s=10")
        await ask("POST", "/api/services/vault/dispatch", json={})
        for path in _READ:
            await ask("GET", path)
        for trace in (await ask("GET", "/api/traces")).json().get("traces", []):
            await ask("GET", f"/api/traces/{trace['trace_id']}")
        for headers in (
            {"authorization": f"Bearer {_WRONG_TOKEN}"},
            {"x-api-key": _WRONG_TOKEN},
            {"authorization": f"Basic {base64.b64encode(_WRONG_TOKEN.encode()).decode()}"},
            {**operator, "x-user-id": OPERATOR + "\x7f"},
            {"authorization": f"Bearer {USER_TOKEN}", "x-user-id": "bob"},
        ):
            await ask("GET", "/api/processes", headers=headers)
        await ask("GET", f"/api/processes?token={OPERATOR}")
        await ask("POST", "/api/agents/teller/chat", content=b'{"message": "' + _FORMED.encode())
        feed.cancel()
    surfaces.look("the feed of events", b"".join(_fed))


_fed: list[bytes] = []


async def _follow(client: httpx.AsyncClient, path: str, headers: dict[str, str]) -> None:
    _fed.clear()
    async with client.stream("GET", path, headers=headers) as response:
        async for piece in response.aiter_bytes():  # what came so far is read when the reader is cancelled
            _fed.append(piece)  # noqa: PERF401


async def _over_grpc(address: str, authority: bytes, surfaces: Surfaces) -> None:
    import grpc
    import grpc.aio
    from google.protobuf.message_factory import GetMessageClass

    from lyra.server.generated import engine_pb2 as pb

    config = json.dumps({"name": "r", "agents": [{"name": "raising"}]}).encode()
    envelope = pb.Envelope(raw_input="x", user_id="ada")
    filled = {
        "ExecutePipeline": pb.ExecuteRequest(pipeline_config=config, envelope=envelope),
        "ExecuteAgent": pb.ExecuteAgentRequest(agent_name="refusing", envelope=envelope),
        "DispatchService": pb.DispatchServiceRequest(service="vault"),
    }
    credentials = grpc.ssl_channel_credentials(authority)
    async with grpc.aio.secure_channel(address, credentials) as channel:
        for token in (OPERATOR, _WRONG_TOKEN):
            metadata = [("authorization", f"Bearer {token}"), ("user_id", "ada")]
            for service in pb.DESCRIPTOR.services_by_name.values():
                for rpc in service.methods:
                    if rpc.name in ("Subscribe", "ClaimWork"):
                        continue
                    request: Any = filled.get(rpc.name) or GetMessageClass(rpc.input_type)()
                    name = f"/{service.full_name}/{rpc.name}"
                    make = channel.unary_stream if rpc.server_streaming else channel.unary_unary
                    call = make(name)(request.SerializeToString(), metadata=metadata, timeout=30)
                    answers: list[bytes] = []
                    try:
                        answers += [part async for part in call] if rpc.server_streaming else [await call]
                    except grpc.RpcError as error:
                        surfaces.look(f"the status of {rpc.name}", str(error.details()))
                        surfaces.look(f"the trailers of {rpc.name}", str(error.trailing_metadata()))
                    surfaces.look(f"the answer of {rpc.name}", b"".join(answers))


async def _failed_starts() -> Attempts:
    """A server that cannot start says why, and not with which password or key."""
    effects = []
    cases = {
        "a store that is not there": (f"postgresql://lyra:{_PASSWORD}@127.0.0.1:9/x", []),
        "a key of TLS that is none": ("memory", ["--tls-cert", "cert.pem", "--tls-key", "bad.pem"]),
    }
    for what, (db, flags) in cases.items():
        with tempfile.TemporaryDirectory(prefix="lyra-exposed-") as name:
            folder = Path(name)
            _make_certificate(folder)
            (folder / "bad.pem").write_text(f"-----BEGIN PRIVATE KEY-----\n{_PASSWORD}\n-----END PRIVATE KEY-----\n")
            flags = ["--log-level", "trace", *flags]
            served = ServedProcess(folder, db, load=Path(planted.__file__), flags=flags)
            try:
                await served.start()
                effects.append(f"{what}: the server started")
            except AssertionError as error:
                if any(spelling in str(error) + served.errors for spelling in spellings(_PASSWORD)):
                    effects.append(f"{what}: its words show the secret")
            finally:
                served.close()
    return Attempts(len(cases), effects)


def _make_certificate(folder: Path) -> str:
    """Write cert.pem and key.pem for 127.0.0.1; gives a line of the key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lyra")])
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    (folder / "key.pem").write_text(pem)
    (folder / "key.pem").chmod(0o600)
    return pem.splitlines()[1]
