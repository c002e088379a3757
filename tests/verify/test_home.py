"""Folders for servers and tests that run as another user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from verify.home import make_folder_for
from verify.servers import PostgresServer, postgres_missing

OTHER_USER = 65534
ROOT = os.geteuid() == 0


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Return a folder that only its owner can enter, as `/tmp` is on some machines."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    return folder


def test_a_closed_folder_is_passed_over(closed: Path) -> None:
    """The new folder is in the first place that the other user can pass through, and is that user's own."""
    user = OTHER_USER if ROOT else os.geteuid()
    made = make_folder_for(OTHER_USER if ROOT else user, prefix="lyra-made-", parents=(str(closed), "/var/tmp"))
    try:
        assert made.stat().st_uid == user
        assert made.parent == (Path("/var/tmp") if ROOT else closed)
    finally:
        made.rmdir()


@pytest.mark.skipif(not ROOT, reason="an ordinary user can enter its own folders: run the tests as root")
def test_no_open_folder_is_said_in_a_sentence(closed: Path) -> None:
    """Where the other user can enter no folder, the error says what to set."""
    with pytest.raises(OSError, match=r"can enter none of .*closed: set TMPDIR"):
        make_folder_for(OTHER_USER, prefix="lyra-made-", parents=(str(closed),))


@pytest.mark.skipif(postgres_missing() is not None, reason=f"{postgres_missing()}")
def test_postgresql_starts_where_temporary_files_are_closed_to_it(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL runs as a user of its own, which need not be able to enter the caller's folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    with PostgresServer() as server:
        assert server.url.startswith("postgresql:///")
