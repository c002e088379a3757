"""`lyra demo` shows what it says it shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lyra.cli.demo_team import FILES

BUDGETS = {"lead": "$0.50", **{file: budget for file, (_, budget, _) in FILES.items()}}


def command(*arguments):
    return [sys.executable, "-m", "lyra.cli.main", "demo", *arguments]


def environment(tmp_path):
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp_path), "NO_COLOR": "1"}


def demo(tmp_path, *arguments, text_in=None):
    return subprocess.run(
        command(*arguments),
        env=environment(tmp_path),
        check=False,
        capture_output=True,
        text=True,
        input=text_in,
        timeout=60,
    )


@pytest.fixture
def report(tmp_path):
    done = demo(tmp_path, "--fast", "--json")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    return json.loads(done.stdout)


def test_nothing_finished_is_performed_again(report):
    """The kernel is killed with SIGKILL in the middle; what was finished is not performed again by the second one."""
    effects = report["effects"]
    assert effects["finished_before_the_kill"] > 5
    assert effects["finished_and_performed_again"] == 0
    assert effects["performed_twice"] == 0
    assert effects["asked_again_with_the_same_key"] >= 1
    assert effects["performed_once"] > effects["finished_before_the_kill"]
    assert report["problems"] == []


def test_the_service_is_flaky_and_the_money_holds(report):
    """There were refusals and retries, one reviewer ran out of money, and no budget was passed."""
    assert report["service"]["429"] > 0
    assert report["service"]["503"] > 0
    assert report["result"]["skipped"] > 0
    assert report["result"]["published"] is True
    for name, spent in report["money"]["by_process"].items():
        assert float(spent[1:]) <= float(BUDGETS[name][1:])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_other_seeds(tmp_path, seed):
    """It holds for other moods of the service too."""
    done = demo(tmp_path, "--fast", "--json", "--seed", str(seed))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["effects"]["finished_and_performed_again"] == 0


def test_plain_lines_without_a_terminal(tmp_path):
    """A pipe gets lines: the journal, the kill, the result."""
    done = demo(tmp_path, "--fast")
    assert done.returncode == 0, done.stderr
    for words in (
        "process.created",
        "kill -9",
        "a second kernel goes on",
        "interrupt.resolved",
        "none performed again",
    ):
        assert words in done.stdout
    assert "\x1b" not in done.stdout


def test_ask_puts_the_question_to_the_user(tmp_path):
    """With --ask a no is a no: nothing is published."""
    done = demo(tmp_path, "--fast", "--json", "--ask", text_in="n\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["published"] is False
    assert "Publish" in done.stderr


@pytest.mark.slow
def test_store_and_keep(tmp_path):
    """--store keeps the journal in a new file, never in an old one; --keep keeps the temporary folder."""
    path = tmp_path / "kept.db"
    done = demo(tmp_path, "--fast", "--json", "--store", str(path))
    assert json.loads(done.stdout)["store"] == str(path)
    assert path.exists()
    again = demo(tmp_path, "--fast", "--json", "--store", str(path))
    assert again.returncode == 2
    assert again.stdout == ""
    kept = json.loads(demo(tmp_path, "--fast", "--json", "--keep").stdout)["store"]
    assert Path(kept).exists()


@pytest.mark.slow
def test_speed_changes_the_time(tmp_path):
    """Twenty times as fast takes less time than four times."""
    quick = json.loads(demo(tmp_path, "--json", "--speed", "20").stdout)["seconds"]
    slower = json.loads(demo(tmp_path, "--json", "--speed", "4").stdout)["seconds"]
    assert quick < slower


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    """SIGINT in the middle: exit 130, no process and no folder is left."""
    running = subprocess.Popen(command(), env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    for line in running.stdout:
        if "effect.started" in line:
            break
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    workers = children.read_text().split() if children.exists() else []
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    assert list(tmp_path.iterdir()) == []
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
