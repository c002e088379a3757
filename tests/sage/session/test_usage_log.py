"""The log of what model calls used: sums by day, session, turn, agent and model; several writers; damage."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lyra.core.budgets.money import Money
from lyra.errors import ConfigError, StoreError
from lyra.sage.session.usage_log import USAGE_FILE, UsageCall, UsageLog, local_day

NOON = 1_763_380_800.0  # 17 November 2025, at noon in London
DAY = 86_400.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[UsageLog]:
    log = UsageLog(tmp_path / "sessions")
    yield log
    log.close()


def used(session: str = "s1", turn: int = 1, agent: str = "sage", model: str = "m", **counts: int | None) -> UsageCall:
    figures = {"input_tokens": 10, "output_tokens": 5, "cost_micro_usd": 100, **counts}
    return UsageCall(session=session, turn=turn, agent=agent, model=model, **figures)  # type: ignore[arg-type]


def test_calls_are_summed_by_each_column(log: UsageLog) -> None:
    """Of one session, of one turn, of the last days, or of all."""
    log.add(used(), now=NOON)
    log.add(used(turn=2, agent="explore", model="n", cache_read_tokens=5), now=NOON + 1)
    log.add(used(session="s2", turn=10), now=NOON + DAY)
    by_agent = {total.group: total for total in log.sums("agent")}
    assert (by_agent["sage"].calls, by_agent["sage"].cost_micro_usd) == (2, 200)
    assert (by_agent["explore"].cache_read_tokens, by_agent["explore"].cache_share) == (5, 0.5)
    assert [total.group for total in log.sums("day")] == [local_day(NOON), local_day(NOON + DAY)]
    assert [total.group for total in log.sums("model", session="s1")] == ["m", "n"]
    assert [total.group for total in log.sums("agent", session="s1", turn=2)] == ["explore"]
    assert [total.group for total in log.sums("session", days=1, now=NOON + DAY)] == ["s2"]
    assert [total.group for total in log.sums("session", days=2, now=NOON + DAY)] == ["s1", "s2"]
    assert [total.group for total in log.sums("turn")] == ["1", "2", "10"], "as numbers"
    with pytest.raises(ConfigError):
        log.sums("day; DROP TABLE usage")  # type: ignore[arg-type]


def test_a_row_is_added_to(log: UsageLog) -> None:
    """Calls of one agent with one model in one turn are one row, with the time of the last."""
    for second in range(3):
        log.add(used(), now=NOON + second)
    (total,) = log.sums("turn")
    assert (total.calls, total.input_tokens, total.cost_micro_usd, total.time) == (3, 30, 300, NOON + 2)
    log.close()
    import sqlite3

    connection = sqlite3.connect(log.path)
    ((rows,),) = connection.execute("SELECT count(*) FROM usage")
    connection.close()
    assert rows == 1


def test_a_call_without_a_price_leaves_a_sum_without_one(log: UsageLog) -> None:
    log.add(used(), now=NOON)
    assert log.sums("day")[0].cost_usd == 0.0001
    log.add(used(cost_micro_usd=None), now=NOON)
    (total,) = log.sums("day")
    assert (total.cost_usd, total.cost_micro_usd, total.unpriced_calls) == (None, 100, 1)


def test_what_was_spent(log: UsageLog) -> None:
    assert log.sum_cost(day=local_day(NOON)) == Money(0)
    assert not log.path.exists(), "reading makes no file"
    log.add(used(), now=NOON)
    log.add(used(session="s2"), now=NOON)
    log.add(used(session="s2"), now=NOON + DAY)
    assert log.sum_cost(session="s2") == Money(200)
    assert log.sum_cost(day=local_day(NOON)) == Money(200)


def test_the_file_is_its_owners_alone(log: UsageLog) -> None:
    os.umask(os.umask(0o022))
    log.add(used(), now=NOON)
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_several_processes_write_at_once(log: UsageLog) -> None:
    """No call is lost, whichever process makes the file."""
    program = (
        "import sys; from pathlib import Path\n"
        "from lyra.sage.session.usage_log import UsageCall, UsageLog\n"
        "log = UsageLog(Path(sys.argv[1]))\n"
        "for turn in range(40): log.add(UsageCall(session='s', turn=turn, agent='a', model='m'), now=1e9)\n"
    )
    words = [sys.executable, "-c", program, str(log.path.parent)]
    running = [subprocess.Popen(words) for _ in range(3)]
    assert [process.wait(30) for process in running] == [0, 0, 0]
    (total,) = log.sums("session")
    assert total.calls == 120


@pytest.mark.parametrize("damage", ["not a database" * 100, "newer"])
def test_a_file_that_cannot_be_used_is_an_error_with_its_place(log: UsageLog, damage: str) -> None:
    """Never an empty log: a limit could not be held."""
    if damage == "newer":
        log.add(used(), now=NOON)
        log.close()
        import sqlite3

        connection = sqlite3.connect(log.path)
        connection.execute("PRAGMA user_version=99")
        connection.close()
    else:
        log.path.parent.mkdir()
        log.path.write_text(damage)
    with pytest.raises(StoreError) as caught:
        log.sum_cost(day="2026-01-01")
    assert str(caught.value.place).endswith(USAGE_FILE)


LIMITED = """
import resource, sys
from pathlib import Path
from lyra.errors import StoreFull
from lyra.sage.session.usage_log import UsageCall, UsageLog

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
folder = Path(sys.argv[1])
log = UsageLog(folder)
call = dict(turn=1, agent="sage", model="m", input_tokens=1, output_tokens=1, cost_micro_usd=1)
use = lambda n: log.add(UsageCall(session=f"s{n}", **call), now=1.0)
try:
    for number in range(2_000):
        use(number)
except StoreFull as error:
    print(error.message, error.hint)
"""


def test_files_that_may_not_grow_are_a_full_disk(tmp_path: Path) -> None:
    """Under a limit on file sizes the usage log ends in StoreFull, and no hint says to move them."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.startswith("there is no room left for") for line in lines] == [True]
    assert all(line.endswith("free some space") for line in lines)
