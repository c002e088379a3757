"""A person in a browser, for tests of pages: a client with the cookie of a login, and the forms of its pages."""

from __future__ import annotations

import html.parser
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.server.http.support import ADA, BOB, OPERATOR, VIEWER, Served, client, served, serving

__all__ = ["ADA", "BOB", "OPERATOR", "VIEWER", "Browser", "Served", "logged_in", "served", "serving", "texts"]


class Browser:
    """A client that has logged in. It sends what a browser sends: the cookie, and where a form comes from."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def page(self, path: str, *, status: int = 200, region: str = "") -> str:
        headers = {"accept": "text/html", "sec-fetch-site": "same-origin"}
        if region:
            headers["x-region"] = region
        answer = await self.http.get(path, headers=headers)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.text

    async def form_token(self) -> str:
        match = re.search(r'data-form="([0-9a-f]+)"', await self.page("/"))
        assert match is not None
        return match[1]

    async def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        """Send a form of a page, with its token."""
        data = {"form_token": await self.form_token(), **(fields or {})}
        return await self.http.post(path, data=data, headers={"sec-fetch-site": "same-origin", **headers})

    async def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """A request of a page's script to the API, with the form token."""
        headers = {"sec-fetch-site": "same-origin", "x-lyra-form": await self.form_token()}
        return await self.http.request(method, path, json=body, headers=headers)


@asynccontextmanager
async def logged_in(parts: Served, token: str = OPERATOR) -> AsyncIterator[Browser]:
    """A browser that was opened with the link of a token."""
    async with client(parts.address) as http:
        answer = await http.get("/", params={"token": token})
        assert answer.status_code == 303, answer.text
        yield Browser(http)


class _TextParser(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def texts(page: str) -> str:
    """What a page says, without its elements."""
    parser = _TextParser()
    parser.feed(page)
    return " ".join("".join(parser.texts).split())


def words(page: str) -> str:
    """The same with a space between the texts of two elements."""
    parser = _TextParser()
    parser.feed(page)
    return " ".join(" ".join(parser.texts).split())


def elements(page: str, name: str) -> list[dict[str, str | None]]:
    """The attributes of all elements of one name."""
    parser = _TextParser()
    parser.feed(page)
    return [attributes for tag, attributes in parser.elements if tag == name]
