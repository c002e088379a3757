"""A person shows a token once; a cookie that is not the token stands for them until they log out, or for 12 hours."""

from __future__ import annotations

import re

import httpx
import pytest

import lyra.server
from lyra import Kernel
from lyra.core.event import Event
from lyra.core.limits import SERVER_LOGIN_FAILURES, SERVER_TOKEN_LOGINS_MAX
from lyra.errors import RateLimited, Unauthenticated
from lyra.server.http.logins import CookiePlace, LoginTable
from lyra.server.identity import TokenTable
from lyra.testing import SimClock
from tests.server.dashboard.support import ADA, OPERATOR, VIEWER, Served, elements, logged_in, served, texts
from tests.server.http.support import client, echo, in_loop


@served()
async def test_a_link_with_a_token_sets_a_cookie_and_drops_the_token_from_the_address(parts: Served) -> None:
    """The cookie is no token, is kept from scripts, is sent from this site alone and names the port."""
    answer = await parts.stranger.get("/?token=" + OPERATOR + "&state=running")
    assert answer.status_code == 303
    assert answer.headers["location"] == "./?state=running"
    cookie = answer.headers["set-cookie"]
    assert OPERATOR not in cookie
    assert f"lyra-{parts.address.port}=" in cookie
    for mark in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"):
        assert mark in cookie.split("; "), mark
    assert "Secure" not in cookie
    page = await parts.stranger.get("/", headers={"accept": "text/html"})
    assert page.status_code == 200
    assert "<nav" in page.text
    assert OPERATOR not in page.text


@served()
async def test_a_page_without_a_login_is_the_form_and_the_api_answers_json(parts: Served) -> None:
    page = await parts.stranger.get("/")
    assert page.status_code == 401
    assert page.headers["content-type"].startswith("text/html")
    assert {"token", "next"} == {row["name"] for row in elements(page.text, "input")}
    data = await parts.stranger.get("/api/processes")
    assert data.status_code == 401
    assert data.json()["error"]["code"] == "unauthenticated"
    wrong = await parts.stranger.get("/?token=wrong-token-0123456789")
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    assert "wrong-token" not in wrong.text


@served()
async def test_the_form_logs_in_and_leads_to_the_page_that_was_asked_for(parts: Served) -> None:
    same = {"sec-fetch-site": "same-origin"}
    form = {"token": OPERATOR, "next": "processes?state=running"}
    answer = await parts.stranger.post("/login", data=form, headers=same)
    assert (answer.status_code, answer.headers["location"]) == (303, "./processes?state=running")
    assert (await parts.stranger.get("/")).status_code == 200
    wrong = await parts.stranger.post("/login", data={"token": "nope"}, headers=same)
    assert wrong.status_code == 401
    assert "not known" in wrong.text


@served()
async def test_a_login_leads_to_no_other_site(parts: Served) -> None:
    same = {"sec-fetch-site": "same-origin"}
    for target in ("//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "java\nscript:1"):
        answer = await parts.stranger.post("/login", data={"token": OPERATOR, "next": target}, headers=same)
        assert answer.headers["location"] in ("./", "./evil.example"), target
    for path in ("//?token=", "///?token="):
        answer = await parts.stranger.get(f"{parts.url}{path}{OPERATOR}")
        assert answer.headers["location"].startswith("./")


@served()
async def test_a_page_of_another_site_cannot_log_in(parts: Served) -> None:
    for headers in ({}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "none"}):
        answer = await parts.stranger.post("/login", data={"token": OPERATOR}, headers=headers)
        assert answer.status_code == 403, headers
        assert "set-cookie" not in answer.headers


@served()
async def test_a_cookie_is_kept_back_once_and_the_page_asks_again(parts: Served) -> None:
    """A browser does not send the cookie when a page of another site leads here: the page loads itself once more."""
    page = await parts.stranger.get("/", headers={"sec-fetch-site": "cross-site"})
    assert any(row.get("http-equiv") == "refresh" for row in elements(page.text, "meta"))
    again = await parts.stranger.get("/", headers={"sec-fetch-site": "same-origin"})
    assert not any(row.get("http-equiv") == "refresh" for row in elements(again.text, "meta"))


@served()
async def test_logging_out_ends_the_login(parts: Served) -> None:
    """The cookie is worth nothing afterwards, also where a copy of it was kept; every role may log out."""
    async with logged_in(parts, VIEWER) as browser:
        cookie = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
        answer = await browser.post("/logout")
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert "Max-Age=0" in answer.headers["set-cookie"]
        copied = await parts.stranger.get("/", headers={"cookie": cookie})
        assert copied.status_code == 401


@served()
async def test_the_api_takes_the_cookie_for_reading(parts: Served) -> None:
    async with logged_in(parts) as browser:
        assert (await browser.http.get("/api/processes")).status_code == 200


@served()
async def test_a_change_by_cookie_comes_from_a_page_of_this_server_with_its_token(parts: Served) -> None:
    """Without the form token, with another login's, from another site or from nowhere: 403 and nothing happens."""
    same = {"sec-fetch-site": "same-origin"}
    body = {"message": "hello"}
    async with logged_in(parts) as browser, logged_in(parts) as other:
        token, foreign = await browser.form_token(), await other.form_token()
        assert token != foreign
        refused = [
            {},
            same,
            {"x-lyra-form": token},
            {**same, "x-lyra-form": foreign},
            {**same, "x-lyra-form": "é"},
            {"sec-fetch-site": "cross-site", "x-lyra-form": token},
            {"sec-fetch-site": "same-site", "x-lyra-form": token},
            {"origin": "null", "x-lyra-form": token},
            {"origin": "https://evil.example", "x-lyra-form": token},
        ]
        for headers in refused:
            answer = await browser.http.post("/api/runs", json={"agent": "echo", **body}, headers=_latin(headers))
            assert answer.status_code == 403, headers
        assert not parts.kernel.live
        allowed = await browser.call("POST", "/api/agents/echo/chat", body)
        assert allowed.status_code == 200
        by_origin = {"origin": parts.url, "x-lyra-form": token}
        assert (await browser.http.post("/api/agents/echo/chat", json=body, headers=by_origin)).status_code == 200


def _latin(headers: dict[str, str]) -> httpx.Headers:
    return httpx.Headers({name.encode(): value.encode("utf-8") for name, value in headers.items()})


@served()
async def test_a_change_with_a_token_needs_no_form(parts: Served) -> None:
    answer = await parts.operator.post("/api/agents/echo/chat", json={"message": "hello"})
    assert answer.status_code == 200


@served(requests_per_minute=3)
async def test_requests_by_cookie_are_counted(parts: Served) -> None:
    """The rate limit holds for a login as for its token."""
    async with logged_in(parts) as browser:
        statuses = [(await browser.http.get("/api/processes")).status_code for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]


@served()
async def test_an_error_of_a_page_is_a_page(parts: Served) -> None:
    async with logged_in(parts) as browser:
        missing = await browser.page("/no/such/page", status=404)
        assert "404 Not Found" in missing
        assert 'href="../../"' in missing
        assert "openapi" in (await browser.http.get("/api/nothing")).json()["error"]["hint"]


@served()
async def test_a_page_has_a_strict_policy(parts: Served) -> None:
    async with logged_in(parts) as browser:
        answer = await browser.http.get("/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert re.search(r"<script(?![^>]* src=)|<style| on\w+=| style=", answer.text) is None
    assert answer.headers["cache-control"] == "no-store"


def test_a_login_ends_after_twelve_hours() -> None:
    clock = SimClock()
    logins = LoginTable(clock, TokenTable({OPERATOR: ""}))
    _, login_id = logins.begin(OPERATOR)
    clock.advance(12 * 3600 - 1)
    assert logins.find(login_id) is not None
    clock.advance(1)
    assert logins.find(login_id) is None


def test_logins_that_have_ended_are_not_kept() -> None:
    clock = SimClock()
    logins = LoginTable(clock, TokenTable({OPERATOR: ""}))
    for _ in range(5):
        logins.begin(OPERATOR)
    clock.advance(12 * 3600)
    logins.begin(OPERATOR)
    assert len(logins._logins) == 1


def test_the_oldest_login_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lyra.server.http.logins.SERVER_LOGINS_MAX", 2)
    logins = LoginTable(SimClock(), TokenTable({OPERATOR: ""}))
    first, second, third = [logins.begin(OPERATOR)[1] for _ in range(3)]
    assert logins.find(first) is None
    assert logins.find(second) is not None
    assert logins.find(third) is not None


def test_a_cookie_under_tls_is_secure_and_its_path_is_that_of_the_application() -> None:
    place = CookiePlace.from_headers({"host": "lyra.example"}, "https", "/lyra")
    line = place.set_line("x", 60)
    assert line.startswith("__Secure-lyra=x; Path=/lyra; ")
    assert "Secure" in line.split("; ")
    behind = CookiePlace.from_headers({"host": "lyra.example:8443", "x-forwarded-proto": "https"}, "http", "")
    assert behind.name == "__Secure-lyra-8443"
    assert behind.path == "/"


def test_two_cookies_of_one_name_are_none() -> None:
    """A cookie that another program of the host put in is not chosen by chance."""
    place = CookiePlace.from_headers({"host": "localhost:8080"}, "http", "")
    assert place.value({"cookie": "a=1; lyra-8080=x"}) == "x"
    assert place.value({"cookie": "lyra-8080=x; lyra-8080=y"}) == ""
    assert place.value({"cookie": "lyra-8081=x"}) == ""


@served()
async def test_two_clients_have_two_logins(parts: Served) -> None:
    async with logged_in(parts) as browser, client(parts.address) as stranger:
        await browser.page("/")
        assert (await stranger.get("/")).status_code == 401


@served()
async def test_an_open_page_hears_nothing_after_a_log_out(parts: Served) -> None:
    """Its stream of events ends, although the connection is still there."""
    async with logged_in(parts) as browser, browser.http.stream("GET", "/api/events") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": open"
        await browser.post("/logout")
        parts.kernel.publish("", "health.alert", {"message": "for people who are logged in"})
        rest = [line async for line in lines]
    assert not any("for people" in line for line in rest)


def test_an_application_that_knows_its_users_has_no_login_form() -> None:
    """Its authenticator is asked for pages, too; a form needs its token, and a stranger gets 401 without a form."""

    async def look() -> None:
        async with Kernel("memory", programs=(echo(),)) as kernel:
            app = lyra.server.app(kernel, authenticate=lambda headers: headers.get("x-person"))
            handle = kernel.spawn(echo())
            kernel.lifecycle.set_owner(handle.pid, "ada")
            transport = httpx.ASGITransport(app)
            same = {"x-person": "ada", "sec-fetch-site": "same-origin"}
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as http:
                stranger = await http.get("/", headers={"accept": "text/html"})
                assert stranger.status_code == 401
                assert not elements(stranger.text, "input")
                page = await http.get("/settings", headers=same)
                assert "ada" in page.text
                form = re.search(r'data-form="([0-9a-f]+)"', page.text)
                assert form is not None
                path = f"/acts/processes/{handle.pid}/stop"
                refused = await http.post(path, data={"form_token": "x"}, headers=same)
                assert refused.status_code == 403
                assert handle.alive
                done = await http.post(path, data={"form_token": form[1]}, headers=same)
                assert done.status_code == 303, done.text
                await handle.wait()

    in_loop(look())


# ---------------------------------------------------------------- tokens that are tried, and logins that are many
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


@served()
async def test_tokens_cannot_be_tried_without_end(parts: Served) -> None:
    """After too many that are not known no other is looked at, by form or by link, not even a right one; those who are
    logged in and those whose token was known before go on. What was tried is told with the address, and no more of it
    than was looked at."""
    acts: list[Event] = []
    parts.kernel.on_event(acts.append, kinds=("person.acted",))
    async with logged_in(parts) as browser:
        for number in range(SERVER_LOGIN_FAILURES):
            token = f"guess-{number}"
            if number % 2:
                answer = await parts.stranger.get("/", params={"token": token})
            else:
                answer = await parts.stranger.post("/login", data={"token": token}, headers=SAME_ORIGIN)
            assert answer.status_code == 401
        for answer in (
            await parts.stranger.get("/", params={"token": ADA}),
            await parts.stranger.post("/login", data={"token": ADA}, headers=SAME_ORIGIN),
        ):
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 0
            assert "set-cookie" not in answer.headers
        assert (await browser.http.get("/api/processes")).status_code == 200
        assert (await parts.operator.get("/api/processes")).status_code == 200
    refused = [act.data for act in acts if act.data["outcome"] != "ok"]
    assert len(refused) == SERVER_LOGIN_FAILURES
    assert {(row["person"], row["act"], row["target"], row["outcome"]) for row in refused} == {
        ("a stranger", "login", "127.0.0.1", "unauthenticated")
    }
    assert "guess" not in str(refused)


def test_an_address_may_try_again_after_a_while() -> None:
    clock = SimClock()
    logins = LoginTable(clock, TokenTable({OPERATOR: ""}))
    for number in range(SERVER_LOGIN_FAILURES):
        with pytest.raises(Unauthenticated):
            logins.begin(f"wrong-{number}", "10.0.0.1")
    with pytest.raises(RateLimited):
        logins.begin(OPERATOR, "10.0.0.1")
    assert logins.begin(OPERATOR, "10.0.0.2")
    clock.advance(120)
    assert logins.begin(OPERATOR, "10.0.0.1")


def test_many_logins_with_one_token_drop_its_own_oldest() -> None:
    logins = LoginTable(SimClock(), TokenTable({OPERATOR: "", ADA: "ada"}))
    _, login_id = logins.begin(OPERATOR)
    first = logins.begin(ADA)[1]
    for _ in range(SERVER_TOKEN_LOGINS_MAX):
        last = logins.begin(ADA)[1]
    assert logins.find(login_id) is not None
    assert logins.find(last) is not None
    assert logins.find(first) is None


@served()
async def test_a_page_of_another_site_cannot_log_a_person_in_by_a_link(parts: Served) -> None:
    """The person would act in another's name without knowing."""
    for site in ("cross-site", "same-site"):
        answer = await parts.stranger.get("/", params={"token": OPERATOR}, headers={"sec-fetch-site": site})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        assert OPERATOR not in answer.text
    opened = await parts.stranger.get("/", params={"token": OPERATOR}, headers={"sec-fetch-site": "none"})
    assert opened.status_code == 303


@served()
async def test_a_new_login_ends_the_one_that_the_browser_had(parts: Served) -> None:
    async with logged_in(parts) as browser:
        old = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
        assert (await browser.http.get("/", params={"token": VIEWER})).status_code == 303
        assert (await browser.http.get("/api/processes")).status_code == 200
    async with client(parts.address, cookie=old) as copied:
        assert (await copied.get("/api/processes")).status_code == 401


@served()
async def test_a_link_with_a_token_is_not_followed_from_another_site(parts: Served) -> None:
    """A page of another site that leads to a log-in link gets no cookie for the person; a person's own address bar, a
    page of this server and a client that is no such browser do."""
    refused = [{"sec-fetch-site": site} for site in ("cross-site", "same-site", "", "none, cross-site")]
    refused.append({"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"})
    for path in ("/", "/costs", "/chat"):
        for headers in refused:
            answer = await parts.stranger.get(path, params={"token": ADA}, headers=headers)
            assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None), headers
        for headers in (
            {},
            {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
            {"sec-fetch-site": "same-origin"},
        ):
            answer = await parts.stranger.get(path, params={"token": ADA}, headers=headers)
            assert answer.status_code == 303
            assert answer.headers["set-cookie"]


@served()
async def test_the_form_says_where_a_token_comes_from(parts: Served) -> None:
    """What it says is so: the server prints the place of its tokens, and a link with one logs in."""
    page = texts((await parts.stranger.get("/costs", headers={"accept": "text/html"})).text)
    assert "lines of its token file, whose place lyra serve prints when it starts" in page
    assert "LYRA_TOKEN" in page
    assert "?token=TOKEN at the end of this address logs in" in page
    assert (await parts.stranger.get("/costs", params={"token": ADA})).status_code == 303
