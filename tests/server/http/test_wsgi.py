"""A WSGI application serves a kernel: answers, streams, errors, and its end."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
import pytest

import lyra.server
from lyra import Kernel
from lyra.server.http.wsgi import WsgiApp
from tests.server.http.support import ADA, BOB, TOKENS, echo, events_of, text_of


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_words: Any) -> None:
        """Nothing is logged."""


def mounted(app: WsgiApp) -> Any:
    """An application of one's own with Lyra below `/lyra`, as a dispatcher does it."""

    def shop(environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if path.startswith("/lyra/"):
            return app({**environ, "SCRIPT_NAME": "/lyra", "PATH_INFO": path[5:]}, start_response)
        start_response("200 OK", [("content-type", "text/plain")])
        return [b"the shop"]

    return shop


@contextmanager
def serving(kernel: Kernel, **options: Any) -> Iterator[httpx.Client]:
    app = lyra.server.wsgi(kernel, tokens=TOKENS, **options)
    server = make_server("127.0.0.1", 0, mounted(app), Threaded, Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{server.server_port}", timeout=60, headers={"authorization": f"Bearer {ADA}"}
        ) as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        app.close()
        app.close()


def test_a_chat_and_its_stream_are_answered_below_the_applications_own_path() -> None:
    with serving(Kernel(programs=[echo()])) as client:
        assert client.get("/").text == "the shop"
        answer = client.post("/lyra/api/agents/echo/chat", json={"message": "hello"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["text"] == "hello"
        streamed = client.post("/lyra/api/agents/echo/chat/stream", json={"message": "one two three"})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert text_of(events_of(streamed.text)) == "one two three"
        session = answer.json()["session_id"]
        foreign = client.post(
            "/lyra/api/agents/echo/chat",
            json={"message": "x", "session_id": session},
            headers={"authorization": f"Bearer {BOB}"},
        )
        assert foreign.status_code == 403


def test_errors_have_their_status_and_a_large_body_is_refused() -> None:
    with serving(Kernel(programs=[echo()]), message_bytes_max=1_000) as client:
        assert client.get("/lyra/api/processes", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/lyra/api/nothing").status_code == 404
        assert client.get("/lyra/api/processes", headers={"host": "evil.example"}).status_code == 421
        large = client.post("/lyra/api/agents/echo/chat", json={"message": "x" * 2_000})
        assert large.status_code == 413
        assert client.get("/lyra/api/processes/a%2Fb").status_code == 404


def test_what_it_began_is_in_the_store_after_it_was_closed(tmp_path: Path) -> None:
    with serving(Kernel(tmp_path / "k.db", programs=[echo()])) as client:
        session = client.post("/lyra/api/agents/echo/chat", json={"message": "first"}).json()["session_id"]
    with serving(Kernel(tmp_path / "k.db", programs=[echo()])) as client:
        again = client.post("/lyra/api/agents/echo/chat", json={"message": "second", "session_id": session})
        assert (again.json()["text"], again.json()["session_id"]) == ("second", session)


def test_a_client_that_leaves_ends_its_stream() -> None:
    """A stream without an end is given up when the server closes the answer, and the kernel closes without waiting."""
    app = lyra.server.wsgi(Kernel(programs=[echo()]), tokens=TOKENS)
    began: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/api/events",
        "HTTP_HOST": "localhost",
        "HTTP_AUTHORIZATION": f"Bearer {ADA}",
        "wsgi.input": io.BytesIO(),
    }
    answer = app(environ, lambda status, _headers: began.append(status))
    assert began == ["200 OK"]
    assert next(iter(answer)) == b": open\n\n"
    answer.close()
    app.close()


def test_a_kernel_that_cannot_open_is_told_to_the_caller(tmp_path: Path) -> None:
    (tmp_path / "k.db").write_text(json.dumps("no database"))
    app = lyra.server.wsgi(Kernel(tmp_path / "k.db"), tokens=TOKENS)
    with pytest.raises(lyra.LyraError):
        app({"REQUEST_METHOD": "GET", "PATH_INFO": "/healthz", "wsgi.input": io.BytesIO()}, lambda *_: None)
    app.close()
