"""The pages work in a WSGI application below a path, too: login, cookie, page and act."""

from __future__ import annotations

import re

import httpx

import lyra.server
from lyra import Kernel
from tests.server.dashboard.support import OPERATOR
from tests.server.http.support import echo


def test_a_person_logs_in_and_talks_to_an_agent_over_wsgi() -> None:
    app = lyra.server.wsgi(Kernel("memory", programs=(echo(),)), tokens={OPERATOR: "ada"})
    transport = httpx.WSGITransport(app=app, script_name="/ops")
    try:
        with httpx.Client(transport=transport, base_url="http://testserver") as http:
            assert http.get("/").status_code == 401
            answer = http.get("/", params={"token": OPERATOR})
            assert (answer.status_code, answer.headers["location"]) == (303, "./")
            assert "Path=/ops" in answer.headers["set-cookie"]
            # The transport leaves the prefix out of the address, so that the client would keep the cookie back.
            http.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
            page = http.get("/settings").text
            form = re.search(r'data-form="([0-9a-f]+)"', page)
            assert form is not None
            headers = {"sec-fetch-site": "same-origin", "x-lyra-form": form[1]}
            said = http.post("/api/agents/echo/chat", json={"message": "hello"}, headers=headers)
            assert said.json()["text"] == "hello"
            assert "1 alive" in re.sub(r"<[^>]+>", "", http.get("/figures").text)
    finally:
        app.close()
