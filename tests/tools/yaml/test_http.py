"""YAML tools that fetch: values stay values, keys go where they belong and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lyra.core.rights.capability import Grant
from lyra.tools.registry import ToolRegistry
from tests.tools.test_http_guard import page, serving
from tests.tools.yaml.support import call, environment, mistakes_of, tool_of

pytestmark = pytest.mark.anyio

GET = """
    name: item
    description: An item.
    params:
      - {name: id, type: string}
      - {name: unit, type: string, enum: [metric, imperial], default: metric}
      - {name: tags, type: array, items: {type: string}, required: false}
      - {name: page, type: integer, min: 1, max: 9, required: false}
    implementation:
      type: http
      url: https://api.example.org/v1/items/{{.id}}/full?fixed=a%20b&u={{unit}}
      query: {tag: "{{tags}}", page: "{{ page }}", all: true}
      headers: {X-Unit: "unit {{unit}}"}
"""


def plain(text: str) -> str:
    return text.replace("https://", "http://")


def first_line(server: Any) -> str:
    return str(server.heads[0].partition("\r\n")[0])


async def test_values_go_into_their_places(tmp_path: Path):
    """Path, query and headers; what is missing is left out, a list is repeated."""
    async with serving(lambda head: page(b'{"ok":1}', Content_Type="application/json")) as server:
        tool = tool_of(plain(GET), environment(tmp_path, lookup=server.lookup, dial=server.dial))
        result = await call(tool, id="7", tags=["a", "b c"])
        await call(tool, id="8", unit="imperial", page="3")
    assert (result.output, result.is_error) == ('{"ok":1}', False)
    assert first_line(server) == "GET /v1/items/7/full?fixed=a%20b&u=metric&tag=a&tag=b%20c&all=true HTTP/1.1"
    assert "x-unit: unit metric\r\n" in server.heads[0]
    assert server.heads[1].startswith("GET /v1/items/8/full?fixed=a%20b&u=imperial&page=3&all=true HTTP/1.1")


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("a/b", "a%2Fb"),
        ("../../admin", "..%2F..%2Fadmin"),
        ("x?admin=1", "x%3Fadmin%3D1"),
        ("x#y", "x%23y"),
        ("x&y=z", "x%26y%3Dz"),
        ("@evil.example", "%40evil.example"),
        ("//evil.example/", "%2F%2Fevil.example%2F"),
        ("a\r\nX-Evil: 1", "a%0D%0AX-Evil%3A%201"),
        ("%2e%2e%2f", "%252e%252e%252f"),
        ("{{unit}}", "%7B%7Bunit%7D%7D"),
        ("a b\\c", "a%20b%5Cc"),
        ("é", "%C3%A9"),
        ("$(id)", "%24%28id%29"),
    ],
)
async def test_no_value_leaves_its_segment(tmp_path: Path, value: str, sent: str):
    async with serving(lambda head: page()) as server:
        tool = tool_of(plain(GET), environment(tmp_path, lookup=server.lookup, dial=server.dial))
        assert not (await call(tool, id=value)).is_error
    assert first_line(server).startswith(f"GET /v1/items/{sent}/full?")
    assert "host: api.example.org\r\n" in server.heads[0].lower()
    assert server.asked == ["api.example.org"]
    assert "x-evil" not in server.heads[0].lower().partition("\r\n")[2]


@pytest.mark.parametrize("value", ["", ".", ".."])
async def test_a_value_that_is_a_step_in_the_path_is_refused(tmp_path: Path, value: str):
    async with serving(lambda head: page()) as server:
        tool = tool_of(plain(GET), environment(tmp_path, lookup=server.lookup, dial=server.dial))
        result = await call(tool, id=value)
    assert (result.error_code, server.heads) == ("invalid_arguments", [])


POST = """
    name: note
    description: Make a note.
    params:
      - {name: title, type: string}
      - {name: stars, type: integer, default: 3}
      - {name: extra, type: object, required: false}
      - {name: who, type: string, required: false}
    implementation:
      type: http
      method: POST
      url: http://api.example.org/notes
      headers: {X-Who: "{{who}}"}
      body:
        title: "{{title}}"
        note: {stars: "{{stars}}", said: "it is {{title}}", extra: "{{extra}}"}
        list: [1, "{{who}}"]
"""


async def sent(folder: Path, text: str, **arguments: Any) -> tuple[Any, str, bytes]:
    """The result, and the head and body that the server got."""
    async with serving(lambda head: page()) as server:
        result = await call(tool_of(text, environment(folder, lookup=server.lookup, dial=server.dial)), **arguments)
    return result, "".join(server.heads), b"".join(server.bodies)


async def test_a_body_is_made_of_typed_values(tmp_path: Path):
    """A place that stands alone keeps its type; quotes and braces in a value end nothing."""
    evil = 'x", "admin": true, "y": "'
    result, head, body = await sent(tmp_path, POST, title=evil, extra={"a": [1]})
    assert not result.is_error
    assert json.loads(body) == {
        "title": evil,
        "note": {"stars": 3, "said": f"it is {evil}", "extra": {"a": [1]}},
        "list": [1],
    }
    assert "content-type: application/json" in head
    assert "x-who" not in head.lower()


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\x7f"])
async def test_a_header_holds_one_line(tmp_path: Path, value: str):
    result, head, _ = await sent(tmp_path, POST, title="t", who=value)
    assert (result.error_code, head) == ("invalid_arguments", "")


@pytest.mark.parametrize(
    ("status", "code"), [("404 Not Found", "not_found"), ("403 No", "permission_denied"), ("500 Oh", "io_error")]
)
async def test_a_refusal_of_the_server_is_an_error(tmp_path: Path, status: str, code: str):
    async with serving(lambda head: page(b"why", status)) as server:
        result = await call(tool_of(plain(GET), environment(tmp_path, lookup=server.lookup, dial=server.dial)), id="1")
    assert (result.is_error, result.error_code) == (True, code)
    assert "why" in result.output


async def test_what_is_no_text_is_not_shown(tmp_path: Path):
    async with serving(lambda head: page(b"\x89PNG\0", Content_Type="image/png")) as server:
        result = await call(tool_of(plain(GET), environment(tmp_path, lookup=server.lookup, dial=server.dial)), id="1")
    assert result.output == "5 bytes of image/png"


# ---------------------------------------------------------------- keys

KEYED = """
    name: keyed
    description: With a key.
    params: [{name: q, type: string, default: x}]
    implementation:
      type: http
      url: http://api.example.org/?q={{q}}
      headers: {Authorization: "Bearer env:MY_TOKEN"}
"""


async def test_a_key_is_sent_and_never_shown(tmp_path: Path):
    """Not in the answer that echoes it, not in an error, not in the tool's own words."""
    key = "correct-horse-battery"
    async with serving(lambda head: page(head.encode())) as server:
        tool = tool_of(KEYED, environment(tmp_path, env={"MY_TOKEN": key}, lookup=server.lookup, dial=server.dial))
        result = await call(tool)
    assert f"authorization: Bearer {key}" in server.heads[0]
    assert key not in result.output
    assert "Bearer ***" in result.output
    assert key not in repr(tool)
    assert "MY_TOKEN" not in json.dumps(tool.schema)


async def test_a_key_that_is_not_there_is_said_by_name(tmp_path: Path):
    result = await call(tool_of(KEYED, environment(tmp_path, env={})))
    assert "MY_TOKEN is not set" in result.output


async def test_a_key_does_not_follow_a_redirect(tmp_path: Path):
    """Not even to a host that the tool's own needs allow."""
    text = KEYED + "    needs: ['net.http:api.example.org', 'net.http:other.example', 'secrets.read:MY_TOKEN']\n"

    def answers(head: str) -> bytes:
        return page() if "other.example" in head else page(b"", "302 Found", Location="http://other.example/")

    async with serving(answers) as server:
        tool = tool_of(text, environment(tmp_path, env={"MY_TOKEN": "x" * 9}, lookup=server.lookup, dial=server.dial))
        assert not (await call(tool)).is_error
        assert "authorization" not in server.heads[1].lower()
        plain_tool = tool_of(
            KEYED, environment(tmp_path, env={"MY_TOKEN": "x" * 9}, lookup=server.lookup, dial=server.dial)
        )
        assert (await call(plain_tool)).error_code == "permission_denied"


def test_keys_of_models_and_of_others_are_not_for_tools(tmp_path: Path):
    """Nor a secret anywhere but in a header."""
    assert "is not for tools" in str(mistakes_of(KEYED.replace("MY_TOKEN", "ANTHROPIC_API_KEY"), tmp_path)[0])
    assert "is not for tools" in str(mistakes_of(KEYED, tmp_path, secrets=["OTHER"])[0])
    assert not mistakes_of(KEYED, tmp_path, secrets=["MY_TOKEN"])
    assert "whole value" in str(mistakes_of(KEYED.replace("Bearer env", "Bearer {{q}} env"), tmp_path)[0])


# ---------------------------------------------------------------- rights


async def test_a_tool_reaches_its_own_host_and_only_what_its_caller_may(tmp_path: Path):
    async with serving(lambda head: page()) as server:
        tool = tool_of(plain(GET), environment(tmp_path, lookup=server.lookup, dial=server.dial))
        registry = ToolRegistry([tool])
        denied = await registry.call("item", {"id": "1"}, grant=Grant(["net.http:other.example"]))
        assert (denied.error_code, server.asked) == ("permission_denied", [])
        assert not (await registry.call("item", {"id": "1"}, grant=Grant(["net.http:api.example.org"]))).is_error
    assert [str(need) for need in (tool.needs_of or list)({"id": "1"})] == ["net.http:api.example.org:80"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "0x7f.1"])
async def test_inside_hosts_are_refused_whatever_the_file_says(tmp_path: Path, host: str):
    text = f"""
        name: inside
        description: Inside.
        implementation: {{type: http, url: "http://{host}/"}}
    """
    async with serving(lambda head: page()) as server:
        result = await call(tool_of(text, environment(tmp_path, dial=server.dial)))
    assert (result.error_code, server.heads) == ("permission_denied", [])


async def test_an_inside_host_that_the_owner_opened_is_reached(tmp_path: Path):
    async with serving(lambda head: page()) as server:
        here = f"127.0.0.1:{server.port}"
        text = f"{{name: a, description: b, implementation: {{type: http, url: 'http://{here}/'}}}}"
        assert (await call(tool_of(text, environment(tmp_path, inside=[here])))).output == "hello"


HOSTS = """
    name: hosts
    description: A choice of hosts.
    params: [{name: region, type: string, enum: [eu, us]}]
    implementation: {type: http, url: "http://{{region}}.example.org/x"}
"""


async def test_a_host_may_be_chosen_from_a_list(tmp_path: Path):
    async with serving(lambda head: page()) as server:
        tool = tool_of(HOSTS, environment(tmp_path, lookup=server.lookup, dial=server.dial))
        assert not (await call(tool, region="us")).is_error
        assert (await call(tool, region="evil.example/")).error_code == "invalid_arguments"
    assert server.asked == ["us.example.org"]
    assert [str(need) for need in (tool.needs_of or list)({"region": "eu"})] == ["net.http:eu.example.org:80"]


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://{{q}}.example.org/", "could be any host"),
        ("{{q}}://example.org/", "begins with http"),
        ("{{q}}", "begins with http"),
        ("http://example.org:{{q}}/", "could be any host"),
        ("http://{{q}}@example.org/", "could be any host"),
        ("http://user:pass@example.org/", "not the beginning"),
        ("ftp://example.org/", "begins with http"),
        ("http://example.org/#{{q}}", "fragment"),
        ("http://example.org/?{{q}}=1", "after the '='"),
        ("http://example.org/a b", "odd character"),
        ("http://example.org/{{r}}", "names the parameter 'r'"),
        ("http://example.org/{{ q", "two braces"),
    ],
)
def test_a_url_that_a_value_could_bend_is_a_mistake(tmp_path: Path, url: str, message: str):
    text = f"""
        name: a
        description: b
        params: [{{name: q, type: string}}]
        implementation:
          type: http
          url: "{url}"
    """
    mistakes = mistakes_of(text, tmp_path)
    assert message in mistakes[0].message
    assert mistakes[0].line == 7


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("'{\"a\": {{q}}}'", "middle of the body"),
        ("'a={{q}}&b=1'", "middle of the body"),
        ("'<x>{{q}}</x>'", "middle of the body"),
        ("{'{{q}}': 1}", "name of a key"),
        ("{a: '{{zz}}'}", "names the parameter 'zz'"),
    ],
)
def test_a_body_that_a_value_could_bend_is_a_mistake(tmp_path: Path, body: str, message: str):
    text = f"""
        name: a
        description: b
        params: [{{name: q, type: string}}]
        implementation: {{type: http, method: POST, url: "http://example.org/", body: {body}}}
    """
    assert message in mistakes_of(text, tmp_path)[0].message


async def test_json_written_as_text_is_json(tmp_path: Path):
    text = """
        name: a
        description: b
        params: [{name: q, type: integer}]
        implementation: {type: http, method: POST, url: "http://example.org/", body: '{"n": "{{.q}}", "t": "n {{.q}}"}'}
    """
    assert json.loads((await sent(tmp_path, text, q=3))[2]) == {"n": 3, "t": "n 3"}
