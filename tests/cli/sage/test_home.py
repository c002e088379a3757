"""`sage` where the environment names no home folder."""

from __future__ import annotations

import logging
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from lyra.cli.main import sage
from lyra.cli.sage.group import fill_in_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home that the system knows for the user."""
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_dir=str(folder)))
    return folder


@pytest.mark.parametrize("value", [None, "", "not/absolute"])
def test_sessions_are_signed_where_home_is_not_set(
    home: Path,
    value: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No run warns: sessions and the key that signs them are in the same home."""
    if value is not None:
        monkeypatch.setenv("HOME", value)
    with caplog.at_level(logging.WARNING):
        for words in ("one", "two"):
            assert sage(["-p", words, "--model", "sim/echo"]) == 0
    assert "not checked" not in caplog.text + capsys.readouterr().err
    assert (home / ".config" / "lyra" / "store.key").exists()
    assert (home / ".local" / "share" / "lyra" / "sessions").is_dir()


def test_a_home_that_is_set_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/elsewhere")
    fill_in_home()
    assert os.environ["HOME"] == "/elsewhere"


def test_a_user_without_a_home_stays_without(home: Path) -> None:
    home.rmdir()
    fill_in_home()
    assert "HOME" not in os.environ
