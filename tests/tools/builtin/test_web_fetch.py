"""WebFetch: public addresses that the Grant names, every redirect judged, text made of what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool, rights
from lyra.errors import CapabilityDenied, LyraError, ToolError
from lyra.tools.builtin.web_fetch import FETCH_BYTES_MAX, REDIRECTS_MAX, follows, page_text, web_tools
from lyra.tools.permissions import Layer, permissions_of
from tests.tools.test_http_guard import PUBLIC, Server, page, serving

pytestmark = pytest.mark.anyio


def web_fetch(server: Server, *, follow: Callable[[str, str], bool] | None = None) -> Tool:
    (tool,) = web_tools(follow=follow, lookup=server.lookup, dial=server.dial)
    return tool


async def fetch(server: Server, url: str, *, grant: Grant | None = None, **options: Any) -> str:
    """As a process with that Grant would call it."""
    offset = options.pop("offset", 0)
    run = web_fetch(server, **options).run
    assert run is not None
    token = rights.set(grant or Grant.all())
    try:
        return str(await run(url=url, offset=offset))
    finally:
        rights.reset(token)


async def refused(server: Server, url: str, **options: Any) -> LyraError:
    with pytest.raises(LyraError) as caught:
        await fetch(server, url, **options)
    return caught.value


def text(body: str) -> bytes:
    return page(body.encode(), Content_Type="text/plain; charset=utf-8")


def always(answer: bytes) -> Callable[[str], bytes]:
    return lambda _head: answer


def moved(to: str) -> bytes:
    return page(b"", "302 Found", Location=to)


# ---------------------------------------------------------------- what is declared
async def test_a_call_needs_its_host_and_port():
    """The right is to exactly that host and port; what cannot be read needs none, and is refused when it runs."""
    (tool,) = web_tools()
    assert tool.needs_of is not None

    def needs(url: object) -> list[str]:
        assert tool.needs_of is not None
        return [str(need) for need in tool.needs_of({"url": url})]

    assert needs("https://Example.ORG/a?b") == ["net.http:example.org:443"]
    assert needs("http://example.org.:8080/") == ["net.http:example.org:8080"]
    assert needs("https://[2606:4700::1111]/") == ["net.http:[2606:4700::1111]:443"]
    assert needs("file:///etc/passwd") == needs(7) == needs("http://a@b/") == []
    assert tool.untrusted
    assert tool.guarded


async def test_without_rights_nothing_is_fetched():
    """Outside of any process there is no Grant, so nothing is granted."""
    async with serving(lambda head: text("x")) as server:
        run = web_fetch(server).run
        assert run is not None
        with pytest.raises(CapabilityDenied):
            await run(url="http://example.org/")
        assert server.asked == []


async def test_the_grant_decides_about_the_host():
    async with serving(lambda head: text("x")) as server:
        grant = Grant(allow=["net.http:example.org:80"])
        assert "x" in await fetch(server, "http://example.org/", grant=grant)
        for url in ("https://example.org/", "http://other.org/", "http://example.org:8080/"):
            assert isinstance(await refused(server, url, grant=grant), CapabilityDenied)
        assert len(server.dialled) == 1


# ---------------------------------------------------------------- addresses
INSIDE = [
    *("http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f.0.0.1/", "http://0x7f000001/"),
    *(
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
    ),
    *("http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:7f00:1]/", "http://[::127.0.0.1]/", "http://localhost/"),
    *("http://LOCALHOST./", "http://a.localhost/", "http://0/", "http://0.0.0.0/", "http://[::]/"),
    *("http://１２７.０.０.１/", "http://127。0。0。1/", "http://①②⑦.0.0.1/", "http://loc\u00adalhost/"),
    *("http://10.0.0.1/", "http://10.1/", "http://192.168.0.1/", "http://172.16.5.4/", "http://172.31.255.255/"),
    *("http://100.64.0.1/", "http://198.18.0.1/", "http://[fc00::1]/", "http://[fd12:3456::1]/", "http://[fe80::1]/"),
    *("http://[fe80::1%25eth0]/", "http://224.0.0.1/", "http://255.255.255.255/", "http://[ff02::1]/"),
    *("http://169.254.169.254/latest/meta-data/", "http://2852039166/", "http://0xa9fea9fe/", "http://169.254.43518/"),
    *("http://[::ffff:169.254.169.254]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::1]/"),
    *("http://metadata.google.internal/", "http://metadata/", "http://instance-data.ec2.internal/"),
    *("http://168.63.129.16/", "http://100.100.100.200/", "http://[fd00:ec2::254]/", "http://printer.local/"),
    *("http://public.org@127.0.0.1/", "http://127.0.0.1\\@public.org/", "http://public.org:80@10.0.0.1/"),
    *("http://public.org#@127.0.0.1:80\\/", "http:///127.0.0.1/", "http://127.0.0.1%00.public.org/"),
    *("http://127.0.0.1:80:443/", "http://[::1/", "ftp://public.org/", "file:///etc/passwd", "gopher://public.org/"),
    *(
        "javascript:alert(1)",
        "data:text/plain,x",
        "//public.org/",
        "public.org",
        "",
        "http://",
        "http://public.org:22/",
    ),
    *("http://public.org:6379/", "http://public.org:0/", "http://public.org:99999/", "http://pub lic.org/"),
    *("http://public.org\r\nHost: x/", "http://public.org/\tx", "http://pübl.org/", "http://2001:db8::1/"),
]


@pytest.mark.parametrize("url", INSIDE)
async def test_what_is_not_public_is_refused(url: str):
    """In every spelling that some reader takes for an inside address, and before anybody is asked or dialled."""
    async with serving(lambda head: text("inside")) as server:
        assert isinstance(await refused(server, url), CapabilityDenied)
        assert (server.asked, server.dialled, server.heads) == ([], [], [])


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:10.0.0.1"])
async def test_a_name_that_leads_inside_is_refused(address: str):
    """Also when only one of its addresses does."""
    for answers in ([address], [PUBLIC, address]):
        async with serving(lambda head: text("inside")) as server:
            server.addresses = [answers]
            assert isinstance(await refused(server, "http://rebind.example/"), CapabilityDenied)
            assert server.dialled == []


async def test_a_name_cannot_change_its_mind():
    """It is asked for once, and what was judged is what is dialled."""
    async with serving(lambda head: text("fine")) as server:
        server.addresses = [[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]]
        assert "fine" in await fetch(server, "http://rebind.example/")
        assert server.asked == ["rebind.example"]
        assert server.dialled == [(PUBLIC, 80)]
        # The next request asks anew, and is refused by the new answer.
        assert isinstance(await refused(server, "http://rebind.example/"), CapabilityDenied)
        assert len(server.dialled) == 1


async def test_public_literals_by_rule_only():
    """In their usual form; an address in disguise would pass by a rule that denies it."""
    async with serving(lambda head: text("fine")) as server:
        assert isinstance(
            await refused(server, "http://8.8.8.8/", grant=Grant(allow=["net.http:example.org"])), CapabilityDenied
        )
        assert "fine" in await fetch(server, "http://8.8.8.8/", grant=Grant(allow=["net.http:8.8.8.8"]))
        assert server.dialled == [("8.8.8.8", 80)]
        for disguised in ("http://134744072/", "http://0x08080808/", "http://8.8.2056/", "http://010.8.8.8/"):
            assert isinstance(await refused(server, disguised), CapabilityDenied)
        assert len(server.dialled) == 1


# ---------------------------------------------------------------- redirects
async def test_redirects_on_one_host_are_followed():
    answers = {"/a": moved("/b"), "/b": moved("http://example.org/c"), "/c": text("there")}
    async with serving(lambda head: answers[head.split()[1]]) as server:
        assert await fetch(server, "http://example.org/a") == "[http://example.org/c]\nthere"


@pytest.mark.parametrize(
    "to",
    [
        *("http://127.0.0.1/", "http://169.254.169.254/latest/", "http://[::1]/", "http://2130706433/", "//10.0.0.1/"),
        *("http://metadata.google.internal/", "file:///etc/passwd", "ftp://example.org/", "http://localhost:8080/"),
        *("http://user:pass@example.org/", "http://example.org:22/", "http://example.org\\@127.0.0.1/"),
    ],
)
async def test_a_redirect_is_judged_like_a_first_request(to: str):
    """Even if `follow` allows every redirect. The error is the tool's: half of its words are the server's, and
    mark the process like any other text from outside."""
    async with serving(lambda head: moved(to)) as server:
        error = await refused(server, "http://example.org/", follow=lambda _url, _to: True)
        assert isinstance(error, ToolError)
        assert error.reason == "permission_denied"
        assert server.dialled == [(PUBLIC, 80)]


async def test_a_redirect_whose_name_leads_inside_is_refused():
    async with serving(lambda head: moved("http://example.org/again")) as server:
        server.addresses = [[PUBLIC], ["10.0.0.1"]]
        assert (await refused(server, "http://example.org/")).reason == "permission_denied"
        assert len(server.dialled) == 1


async def test_a_redirect_to_another_host_is_told_not_followed():
    """The model may ask for it, and is then asked about it."""
    for to in ("https://other.org/x?y", "http://example.org:8080/", "http://sub.example.org/"):
        async with serving(always(moved(to))) as server:
            fetched = await fetch(server, "http://example.org/")
            assert to in fetched
            assert "not followed" in fetched
            assert len(server.dialled) == 1


async def test_a_rule_lets_a_redirect_go_on_but_never_past_the_grant():
    """A rule for the whole tool or that very URL covers the other host; a pattern after untrusted text does not."""

    def answer(head: str) -> bytes:
        return text("there") if "Host: www.example.org" in head else moved("http://www.example.org/x")

    async with serving(answer) as server:
        for allow, goes_on in (("WebFetch", True), ("WebFetch(*.example.org)", False), ("WebFetch(a.org)", False)):
            rules = permissions_of([Layer("user", {"allow": [allow]})], workspace="/project")
            fetched = await fetch(server, "http://example.org/", follow=follows(rules))
            assert ("there" in fetched) is goes_on
        narrow = Grant(allow=["net.http:example.org"])
        error = await refused(server, "http://example.org/", follow=lambda _url, _to: True, grant=narrow)
        assert error.reason == "permission_denied"


async def test_a_redirect_on_one_host_is_held_against_the_rules():
    """A deny of a path is not passed by way of another path, and an allow of a path does not cover others."""
    answers = {"/open/1": moved("/private/x"), "/open/2": moved("/open/3"), "/open/3": text("there")}
    denied = {"allow": ["WebFetch(example.org)"], "deny": ["WebFetch(http://example.org/private/*)"]}
    by_path = {"allow": ["WebFetch(http://example.org/open/*)"]}
    async with serving(lambda head: answers.get(head.split()[1], text("PRIVATE"))) as server:
        for rules in (denied, by_path):
            permissions = permissions_of([Layer("user", rules)], workspace="/project")
            fetched = await fetch(server, "http://example.org/open/1", follow=follows(permissions))
            assert "/private/x\n(not followed)" in fetched
            assert "there" in await fetch(server, "http://example.org/open/2", follow=follows(permissions))
        assert not [head for head in server.heads if "/private" in head]


async def test_redirects_end():
    """As many as are allowed are followed, and no more."""

    def count(head: str) -> bytes:
        number = int(head.split()[1][1:])
        return moved(f"/{number - 1}") if number else text("there")

    async with serving(count) as server:
        assert "there" in await fetch(server, f"http://example.org/{REDIRECTS_MAX}")
        assert "redirects" in (await refused(server, f"http://example.org/{REDIRECTS_MAX + 1}")).message
    async with serving(lambda head: moved("/again")) as server:
        error = await refused(server, "http://example.org/")
        assert "redirects" in error.message
        assert len(server.heads) == REDIRECTS_MAX + 1


async def test_a_redirect_does_not_leave_https():
    from lyra.sandbox.addresses import after_redirect

    with pytest.raises(CapabilityDenied):
        after_redirect("https://example.org/", "http://example.org/")


# ---------------------------------------------------------------- what comes back
async def test_pages_become_text():
    html = "<title>T</title><h1>Head</h1><p>One <a href='/x'>two</a></p><script>evil()</script>"
    async with serving(lambda head: page(html.encode(), Content_Type="text/html")) as server:
        fetched = await fetch(server, "http://example.org/")
    assert fetched == "[http://example.org/]\nT\n\n# Head\n\nOne two (http://example.org/x)"


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/json"])
async def test_what_no_screen_shows_is_not_in_a_page(kind: str):
    """Written as it is, or as a character reference."""
    hidden = "\u200b\u202e\U000e0041\x1b"
    body = f"before{hidden}after" + ("&#x200b;&#917569;!" if kind == "text/html" else "")
    async with serving(lambda _head: page(body.encode(), Content_Type=f"{kind}; charset=utf-8")) as server:
        fetched = await fetch(server, "http://example.org/")
    assert "beforeafter" in fetched
    assert not any(char in fetched for char in hidden)


@pytest.mark.parametrize(
    "name", ["punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7", "hex"]
)
@pytest.mark.parametrize("by", ["header", "page"])
async def test_only_what_pages_are_written_in_is_decoded(name: str, by: str):
    """A codec that takes hours, or reads an escape, is not for a server to choose."""
    body = b"".join([b"charset=", name.encode(), rb" A a-", b"ba9" * 40_000, b"+AGE-"])
    kind = f"text/plain; charset={name}" if by == "header" else "text/plain"
    began = time.process_time()
    async with serving(lambda head: page(body, Content_Type=kind)) as server:
        fetched = await fetch(server, "http://example.org/")
    assert fetched.startswith(f"[http://example.org/]\n{body[:1000].decode()}")
    assert time.process_time() - began < 2.0


async def test_a_long_text_is_decoded_piece_by_piece():
    """Also where the pieces divide a character."""
    for name, sign in (("utf-8", "ö€"), ("shift_jis", "表"), ("gb18030", "语"), ("iso-8859-8", "א"), ("cp932", "ソ")):
        body = ("x" + sign * 70_000).encode(name)
        async with serving(lambda head, b=body, n=name: page(b, Content_Type=f"text/plain; charset={n}")) as server:  # type: ignore[misc]
            fetched = await fetch(server, "http://example.org/")
        assert fetched.startswith("[http://example.org/]\nx" + sign * 40_000)
        assert "\ufffd" not in fetched


async def test_other_texts_stay_as_they_are_in_their_encoding():
    async with serving(lambda head: page(b'{"a": "<b>"}', Content_Type="application/json")) as server:
        assert await fetch(server, "http://example.org/") == '[http://example.org/]\n{"a": "<b>"}'
    latin = page("Größe".encode("latin-1"), Content_Type="text/plain; charset=iso-8859-1")
    async with serving(lambda head: latin) as server:
        assert "Größe" in await fetch(server, "http://example.org/")
    odd = page("Größe".encode(), Content_Type="text/plain; charset=nothing-like-it")
    async with serving(lambda head: odd) as server:
        assert "Größe" in await fetch(server, "http://example.org/")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (page(b"\x89PNG", Content_Type="image/png"), "binary"),
        (page(b"PK", Content_Type="application/zip"), "binary"),
        (page(b"a\0b", Content_Type="text/plain"), "binary"),
        (page(b"a\0b"), "binary"),
        (page(b"gone", "404 Not Found", Content_Type="text/plain"), "not_found"),
        (page(b"no", "500 Oops", Content_Type="text/plain"), "io_error"),
        (page(b"x", Content_Encoding="br", Content_Type="text/plain"), "io_error"),
        (b"not http at all\r\n\r\n", "io_error"),
    ],
)
async def test_what_cannot_be_read_says_so(answer: bytes, reason: str):
    async with serving(lambda head: answer) as server:
        error = await refused(server, "http://example.org/")
        assert isinstance(error, ToolError)
        assert error.reason == reason


async def test_large_answers_and_bombs_are_cut_off():
    """What is packed counts as it unpacks: ten megabytes of nothing in ten kilobytes are ten megabytes."""
    bomb = gzip.compress(bytes(100 << 20))
    for answer in (
        page(b"x" * (FETCH_BYTES_MAX + 1), Content_Type="text/plain"),
        page(bomb, Content_Encoding="gzip", Content_Type="text/html"),
    ):
        async with serving(always(answer)) as server:
            assert (await refused(server, "http://example.org/")).reason == "too_large"


async def test_long_texts_are_read_in_parts():
    async with serving(lambda head: text("ab" * 60_000)) as server:
        first = await fetch(server, "http://example.org/")
        assert first.endswith("20000 more characters; go on with offset=100000")
        assert len(await fetch(server, "http://example.org/", offset=100_000)) < 21_000
        assert (await refused(server, "http://example.org/", offset=120_000)).reason == "invalid_arguments"
        assert (await refused(server, "http://example.org/", offset=-1)).reason == "invalid_arguments"


async def test_a_server_that_says_nothing_is_left(monkeypatch: pytest.MonkeyPatch):
    """The whole fetch has one time, redirects and all."""
    monkeypatch.setattr("lyra.tools.builtin.web_fetch.FETCH_S", 0.2)
    server = Server(lambda head: b"")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # the request, and nothing more until the other side gives up
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    assert (await refused(server, "http://example.org/")).reason == "timeout"
    listening.close()
    await listening.wait_closed()
    await asyncio.sleep(0.01)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    async with serving(lambda head: text("fine")) as server:
        assert "fine" in await fetch(server, "http://example.org/")
        assert server.heads[0].startswith("GET / HTTP/1.1\r\n")
        assert "cookie" not in server.heads[0].lower()


# ---------------------------------------------------------------- HTML
@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("a<b", "a"),
        ("1 < 2 &lt; 3 &amp; x", "1 < 2 < 3 & x"),
        ("<ul><li>one<li>two</ul>", "- one\n- two"),
        ("<table><tr><th>a</th><td>b</td></tr><tr><td>c</td></tr></table>", "a | b |\nc |"),
        ("<pre>  x\n   y</pre>", "  x\n   y"),
        ("<p>  many \n\n blanks  </p><p>two</p>", "many blanks\n\ntwo"),
        ("<script>a<b</script><style>x</style><!-- no --><p>yes", "yes"),
        ("<SCRIPT>no</ScRiPt >yes", "yes"),
        ("<script>never closed", ""),
        ("<!-- never closed", ""),
        ("<a href='javascript:x()'>text</a>", "text"),
        ("<a href=//h.org/x>text</a>", "text (https://h.org/x)"),
        ("<a href=/x></a>", ""),
        ('<img alt="a picture" src=x>', "[a picture]"),
        ("&#" + "9" * 5_000, "&#" + "9" * 5_000),
        ("</p></a></li>", ""),
    ],
)
def test_html_as_text(html: str, expected: str):
    assert page_text(html, url="https://e.org/").strip("\n") == expected


@pytest.mark.parametrize(
    "piece", ["<", "</", "<!--", "<!", "<a ", "<a href='", "<script", "<script>", "&#x", " \n", "<p>", "<a>", "<pre>"]
)
def test_no_page_takes_for_ever(piece: str):
    """Twice as much takes about twice as long: none of these is a trap."""
    import time

    def seconds(size: int) -> float:
        began = time.process_time()
        page_text(piece * (size // len(piece)))
        return time.process_time() - began

    assert seconds(400_000) < 3


# ---------------------------------------------------------------- TLS
@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A key and a certificate for example.org that only this test trusts."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    key, pem = str(folder / "key"), str(folder / "certificate")
    line = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=example.org -addext subjectAltName=DNS:example.org"
    subprocess.run([program, *line.split(), "-keyout", key, "-out", pem], check=True, capture_output=True)
    return key, pem


async def test_tls_checks_the_name_though_an_address_is_dialled(
    certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    """The server is asked for by its name, and a certificate of another name, or of an unknown issuer, is refused."""
    key, pem = certificate
    names: list[str] = []
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(pem, key)
    served.sni_callback = lambda _socket, name, _context: names.append(str(name))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(text("safe"))
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=served)
    server = Server(lambda head: b"")
    server.port = listening.sockets[0].getsockname()[1]
    assert (await refused(server, "https://example.org/")).reason == "io_error"  # its issuer is not trusted
    trusted = ssl.create_default_context(cafile=pem)
    monkeypatch.setattr("lyra.tools.http_guard._make_ssl_context", lambda: trusted)
    assert "safe" in await fetch(server, "https://example.org/")
    assert (await refused(server, "https://other.org/")).reason == "io_error"
    assert names == ["example.org", "example.org", "other.org"]
    assert server.dialled == [(PUBLIC, 443)] * 3
    listening.close()
    await listening.wait_closed()
