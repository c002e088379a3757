"""Any value at all: it comes out of its place as it went in, and nothing around it has moved."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.tools.yaml.template import bind
from tests.cases import cases
from tests.tools.yaml.support import environment, tool_of

HTTP = """
    name: a
    description: b
    params: [{name: x, type: string}, {name: y, type: string, required: false}]
    implementation:
      type: http
      method: POST
      url: "https://api.example.org/v1/{{x}}/p-{{x}}?a={{x}}&b=1"
      query: {c: "{{y}}"}
      body: {k: "{{x}}", l: ["{{y}}", "<{{x}}>"]}
"""
EXEC = """
    name: a
    description: b
    params: [{name: x, type: string}, {name: y, type: string}]
    implementation: {type: exec, command: [prog, "{{x}}", "--y={{y}}", --, "{{y}}", end]}
"""
# Texts as attackers and ordinary people write them: pieces of every language environment, and anything else.
PIECES = st.sampled_from(
    [
        *("..", "/", "\\", "?", "#", "&", "=", "@", ":", "%2e", "%00", "{{x}}", "{{.y}}", "}}", '"', "'", "\n", "\r\n"),
        *(
            "$(id)",
            "`",
            ";",
            "|",
            "-",
            "--",
            " ",
            "${x}",
            "é",
            "\u202e",
            "\x00",
            "\ue000",
            "127.0.0.1",
            "http://",
            "<",
            "a",
        ),
    ]
)
VALUES = st.one_of(st.lists(PIECES, max_size=8).map("".join), st.text(max_size=30))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("values")


def kind(tool: Tool) -> tuple[Any, Any]:
    run: Any = tool.run
    return run._params, run._kind


@settings(max_examples=cases(500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=VALUES, y=st.one_of(st.none(), VALUES))
def test_a_url_and_a_body_keep_their_shape(place: Path, x: str, y: str | None):
    params, http = kind(tool_of(HTTP, environment(place)))
    with contextlib.suppress(ToolError):
        values = params.read({"x": x, **({} if y is None else {"y": y})})
        url = http._url.fill(values)
        assert url.isascii()
        parts = urlsplit(url)
        assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "api.example.org", "")
        segments = parts.path.split("/")
        assert segments[:2] == ["", "v1"]
        assert [unquote(segment) for segment in segments[2:]] == [x, f"p-{x}"]
        assert not {".", ".."} & set(segments)
        wanted = [("a", x), ("b", "1"), *([] if y is None else [("c", y)])]
        assert parse_qsl(parts.query, keep_blank_values=True) == wanted
        body = json.loads(json.dumps(bind(http._body, values)))
        assert body == {"k": x, "l": [*([] if y is None else [y]), f"<{x}>"]}


@settings(max_examples=cases(500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=VALUES, y=VALUES)
def test_a_command_has_the_words_of_its_file(place: Path, x: str, y: str):
    params, command = kind(tool_of(EXEC, environment(place)))
    try:
        argv = command.argv(params.read({"x": x, "y": y}))
    except ToolError:
        assert x.startswith("-") or "\0" in x + y
    else:
        assert argv == ["prog", x, f"--y={y}", "--", y, "end"]
