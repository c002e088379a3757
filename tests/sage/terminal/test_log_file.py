"""Log lines of an interactive session."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest

from lyra.cli.sage.start import logs_to_file
from lyra.observe import configure_logs, logs


def test_log_lines_and_warnings_go_to_the_file_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With keys masked and escape sequences visible, one line each; nothing comes on stderr."""
    path = tmp_path / "data" / "sage.log"
    with logs_to_file(path):
        logging.getLogger("lyra.agents").warning("process %s waits: \x1b[31m\n%s", "p1", "sk-ant-" + "a1B2" * 8)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.getLogger("asyncio").error("never retrieved")
        logging.getLogger("x").warning("%d", "no number")
    lines = path.read_text().splitlines()
    assert path.stat().st_mode & 0o077 == 0
    assert "lyra.agents: process p1 waits: " in lines[0]
    assert "sk-ant" not in path.read_text()
    assert "\x1b" not in path.read_text()
    assert any("DeprecationWarning: old" in line for line in lines)
    assert any("asyncio: never retrieved" in line for line in lines)
    assert capfd.readouterr() == ("", "")


def test_a_file_that_has_grown_large_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "sage.log"
    path.write_bytes(b"x" * (1024 * 1024 + 1))
    with logs_to_file(path):
        logging.getLogger("x").warning("new")
    assert path.read_text().endswith("x: new\n")
    assert path.stat().st_size < 200


def test_where_the_file_cannot_be_written_lines_are_dropped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also a link is not followed."""
    target = tmp_path / "target"
    (tmp_path / "sage.log").symlink_to(target)
    with logs_to_file(tmp_path / "sage.log"):
        logging.getLogger("x").warning("new")
    assert not target.exists()
    assert capfd.readouterr() == ("", "")


def test_the_log_of_the_option_goes_to_the_file_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--log-level info` would write into the screen: while a session is open its lines go to the file."""
    logger = logging.getLogger("lyra")
    before = (list(logger.handlers), logger.propagate, logger.level)
    try:
        configure_logs("info")
        with logs_to_file(tmp_path / "sage.log"):
            logger.warning("inside")
        logger.warning("after")
        assert "lyra: inside" in (tmp_path / "sage.log").read_text()
        assert "inside" not in (shown := capfd.readouterr().err)
        assert "after" in shown
    finally:
        logger.handlers, logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
        logs._configured.clear()
