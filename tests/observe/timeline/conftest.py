"""A store, and the file in which real acts are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.forks import programs


@pytest.fixture(autouse=True)
def acts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "acts.txt"
    monkeypatch.setenv(programs.ACTS, str(path))
    return path


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "run.db")
