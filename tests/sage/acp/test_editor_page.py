"""The settings for editors on the page about them start a command that exists, with options that it has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lyra.cli.sage.group import sage
from tests.test_docs import check_command

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "sage-in-an-editor.md"
SETTINGS = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", SETTINGS)
def test_the_settings_start_sage(text: str) -> None:
    (server,) = json.loads(text)["agent_servers"].values()
    assert server["command"].endswith("/sage")
    assert server["args"][0] == "acp"
    check_command(server["args"], sage)


def test_there_are_settings_for_two_editors_in_json() -> None:
    assert len(SETTINGS) == 2
