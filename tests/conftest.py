"""Which tests are slow by their nature: they start servers, sandboxes or whole programs by the dozen."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent

# Files and folders below tests/; `make check` leaves them out, `make test` runs them all.
_SLOW = (
    "agents/test_chaos.py",
    "agents/test_figures.py",
    "agents/test_limits.py",
    "agents/test_policies.py",
    "models/test_aimock.py",
    "models/test_bedrock.py",
    "models/test_cloud.py",
    "models/test_conversations.py",
    "models/test_fuzz.py",
    "models/test_gemini.py",
    "models/test_http.py",
    "models/test_judge.py",
    "models/test_moved_talks.py",
    "models/test_reader.py",
    "models/test_remote.py",
    "models/test_vertex.py",
    "sandbox/",
    "test_agent_examples.py",
    "testing/",
    "tools/builtin/",
    "tools/permissions/test_bash.py",
    "tools/permissions/test_fuzz.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(_HERE).as_posix() if item.path.is_relative_to(_HERE) else ""
        if place.startswith(_SLOW):
            item.add_marker(pytest.mark.slow)
