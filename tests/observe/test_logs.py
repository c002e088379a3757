"""The log: five levels, JSON lines with trace and pid, a file, and nothing secret in it."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.core.event import KINDS, Event
from lyra.core.trace_context import continued
from lyra.errors import ConfigError
from lyra.observe import EventLog, attach_log, configure_logs
from lyra.observe import logs as module
from lyra.observe.logs import LEVEL_OF, LEVELS
from tests.agents.support import calls, run, says

KEY = "sk-ant-" + "planted0123456789abcdef"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    logging.getLogger("lyra.program").info("adding")
    return a + b


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The logger as it was before."""
    logger = logging.getLogger("lyra")
    before = (logger.level, logger.propagate)
    yield
    for handler in module._configured:
        logger.removeHandler(handler)
        handler.close()
    module._configured.clear()
    logger.level, logger.propagate = before
    logging.getLogger("lyra.events").manager._clear_cache()  # type: ignore[attr-defined]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def work() -> None:
    async with Kernel() as kernel:
        process = await kernel.spawn(Agent("Coder", model=says(calls("add", a=1, b=2), "the answer"), tools=[add]))
        await process.send(f"the question {KEY}")


def test_json_lines_have_trace_and_pid(tmp_path):
    """Events and messages of one run: level, time, logger, message, pid; a tool's own message is in its span."""
    path = tmp_path / "log.jsonl"
    configure_logs("debug", "json", path)
    run(work())
    rows = lines(path)
    kinds = [row["message"] for row in rows if row["logger"] == "lyra.events"]
    assert [kind for kind in kinds if kind.startswith(("model", "tool.called", "agent"))] == [
        *("agent.began", "model.called", "tool.called", "model.called", "agent.answered", "agent.ended"),
    ]
    called = next(row for row in rows if row["message"] == "tool.called")
    adding = next(row for row in rows if row["message"] == "adding")
    assert called.items() >= {"level": "debug", "tool": "add", "status": "ok"}.items()
    assert (adding["level"], adding["pid"]) == ("info", called["pid"])
    assert (adding["trace_id"], adding["span_id"]) == (called["trace_id"], called["span_id"])
    assert adding["time"].endswith("+00:00")
    text = path.read_text()
    assert "question" not in text
    assert "the answer" not in text
    assert KEY not in text
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_levels_hold_back_what_is_below_them(tmp_path):
    """Each level has its own records and those above; Events of lower levels are not even listened to."""
    assert list(LEVELS) == ["error", "warn", "info", "debug", "trace"]
    assert LEVEL_OF.keys() == KINDS.keys()
    counts = [len(EventLog(level).kinds) for level in LEVELS]
    assert counts == sorted(set(counts))
    assert counts[-1] == len(KINDS)
    for level in LEVELS:
        path = tmp_path / level
        configure_logs(level, "json", path)
        for word, number in LEVELS.items():
            logging.getLogger("lyra.program").log(number, "at %s", word)
        assert [row["level"] for row in lines(path)] == list(LEVELS)[: list(LEVELS).index(level) + 1]


def test_without_configuration_nothing_listens():
    """A kernel whose log was not configured has no listener for it."""

    async def main() -> None:
        async with Kernel() as kernel:
            attach_log(kernel)
            assert "log" not in kernel.parts

    run(main())


def test_text_is_one_line_for_people(capsys):
    """Time, level, logger, message, then what else is known; keys are masked."""
    configure_logs("info", "text")
    with continued(f"00-{TRACE}-{PARENT}-01"):
        logging.getLogger("lyra.program").error("lost %s", KEY)
    line = capsys.readouterr().err
    assert " ERROR lyra.program: lost " in line
    assert f"trace_id={TRACE}" in line
    assert KEY not in line
    assert line.count("\n") == 1


def test_an_exception_is_named_in_the_line(tmp_path):
    """Type and message of the exception, without a traceback over many lines."""
    configure_logs("warn", "json", tmp_path / "log")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("lyra.program").exception("it failed")
    (row,) = lines(tmp_path / "log")
    assert row["message"] == "it failed: ValueError: broken"


def test_texts_of_events_are_redacted_and_cut(tmp_path):
    """Only named fields of an Event, without keys."""
    configure_logs("trace", "json", tmp_path / "log")
    log = EventLog("trace")
    log(Event(1, 5.0, "p1", "tool.refused", {"tool": "Bash", "reason": f"has {KEY}", "subject": "rm -rf /"}))
    (row,) = lines(tmp_path / "log")
    assert (row["level"], row["pid"], row["tool"]) == ("warn", "p1", "Bash")
    assert KEY not in str(row)
    assert "subject" not in row
    assert row["time"].startswith("1970-01-01T00:00:05")


@pytest.mark.parametrize(
    "arguments", [("loud",), ("info", "xml"), ("info", "json", "/nowhere/at/all")], ids=["level", "format", "file"]
)
def test_wrong_settings_are_refused(arguments):
    """A level, a format or a file that does not exist is an error of the configuration."""
    with pytest.raises(ConfigError):
        configure_logs(*arguments)


def test_a_link_in_place_of_the_file_is_refused(tmp_path):
    """The log does not follow a link to another file."""
    (tmp_path / "target").write_text("")
    (tmp_path / "log").symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError):
        configure_logs("info", "json", tmp_path / "log")


def test_secrets_of_the_caller_are_masked(tmp_path):
    """`attach_log(kernel, secrets)`: texts without the form of a key, in messages and in fields of Events."""
    path = tmp_path / "log.jsonl"
    configure_logs("info", "json", path)

    async def main() -> None:
        async with Kernel() as kernel:
            attach_log(kernel, lambda: ("open-sesame",))
            logging.getLogger("lyra.program").info("the word is open-sesame")

    run(main())
    (row,) = [row for row in lines(path) if row["logger"] == "lyra.program"]
    assert row["message"].startswith("the word is ")
    assert "open-sesame" not in row["message"]
