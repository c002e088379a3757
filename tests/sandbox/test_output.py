"""What a command printed, on a disk that is full and for as long as a server lives."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from lyra.sandbox import Job, Limits, Profile, Sandbox
from lyra.sandbox.job import Capture, LaunchPlan
from lyra.sandbox.protected import News


@pytest.fixture
def small_files():
    """No file of this process may be longer than 100 kB: as good as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("size", [90_000, 103_000, 150_000, 2_000_000])
def test_a_full_disk_ends_nothing_and_claims_nothing(tmp_path, small_files, size):
    """Head and tail are there, the file only where it has everything."""
    command = ["sh", "-c", f"head -c {size} /dev/zero; echo; echo end"]
    result = asyncio.run(
        asyncio.wait_for(Sandbox(spill_folder=str(tmp_path)).run(command, Profile(_made(tmp_path))), 20)
    )
    assert result.output.total_bytes == size + 5
    assert result.output.text.endswith("end\n")
    if result.output.file is None:
        assert size > 100_000
        assert "all of it" not in result.output.text
        assert [name for name in os.listdir(tmp_path) if name.startswith("lyra-output")] == []
    else:
        assert os.path.getsize(result.output.file) == size + 5


def _made(folder) -> str:
    (folder / "work").mkdir()
    return str(folder / "work")


def test_the_end_can_be_read_where_the_rest_is_lost():
    capture = Capture(kept_bytes=10, most_bytes=1_000, has_file=False)
    for number in range(100):
        assert capture.feed(b"%02d" % number)
    captured = capture.close()
    assert (captured.head, captured.tail, captured.total_bytes, captured.file) == (b"00010", b"79899", 200, None)
    assert capture.since(196, most_bytes=4) == b"9899"


def test_what_a_server_says_on_stderr_fills_no_disk(tmp_path, monkeypatch):
    """However much it is: no file, and no limit that would end it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    async def talk() -> None:
        script = "head -c 70000000 /dev/zero >&2; echo done; read line; echo last words >&2"
        pipes = await Sandbox().pipes(["sh", "-c", script], Profile(_made(tmp_path)))
        assert await pipes.reader.readline() == b"done\n"
        pipes.writer.write(b"\n")
        result = await pipes.close(5)
        assert (result.exit_code, result.limits_hit) == (0, ())
        assert result.output.text.endswith("last words\n")

    asyncio.run(talk())
    assert os.listdir(tmp_path / "tmp") == []


def test_a_workspace_that_is_gone_ends_the_command_all_the_same(tmp_path):
    """Another process removed the file meanwhile."""

    async def vanish():
        job = await Sandbox().start(["sh", "-c", "echo on; sleep 0.3"], Profile(_made(tmp_path)))
        while not job.output.total_bytes:
            await asyncio.sleep(0.01)
        shutil.rmtree(tmp_path / "work")
        return await asyncio.wait_for(job.wait(), 10)

    assert asyncio.run(vanish()).exit_code == 0


def test_a_large_workspace_tells_its_news_too(tmp_path, monkeypatch):
    """It is looked through beside the loop."""
    monkeypatch.setattr("lyra.sandbox.job._AT_ONCE_MAX", 0)
    result = asyncio.run(Sandbox().run(["sh", "-c", "touch lyra.toml"], Profile(_made(tmp_path))))
    assert result.appeared == ("lyra.toml",)
    assert len(result.set_aside) == 1


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_pid_of_a_running_command(tmp_path):
    """It is that of a process that this one started; a signal to it ends the command."""

    async def main():
        job = await Sandbox().start(["sleep", "60"], Profile(_made(tmp_path)))
        parent = _parent_of(job.pid)
        os.kill(job.pid, signal.SIGKILL)
        result = await job.wait()
        return parent, result.exit_code

    assert asyncio.run(asyncio.wait_for(main(), 20)) == (os.getpid(), 128 + signal.SIGKILL)


def test_long_output_lies_in_the_folder_of_the_sandbox(tmp_path):
    """By `spill_folder`, whole; the text shows its head and its tail."""
    spill = tmp_path / "spill"
    spill.mkdir()
    command = ["sh", "-c", "head -c 3000000 /dev/zero; echo end"]
    work = Sandbox(spill_folder=str(spill)).run(command, Profile(_made(tmp_path)))
    output = asyncio.run(asyncio.wait_for(work, 20)).output
    assert [str(path) for path in spill.iterdir()] == [output.file]
    assert Path(str(output.file)).stat().st_size == 3_000_004


def test_a_result_tells_which_folders_were_shut(tmp_path):
    """What the search after the command found: folders that it shut, and those that nobody could look into."""

    async def main():
        news = News(reopened=("a",), unread=("b",))
        plan = LaunchPlan(["true"], {}, str(tmp_path), "none", news=lambda most: news)
        job = Job(plan, Limits(), stdin=None, timeout_s=10.0, apart=False, spill=None)
        return await job.wait()

    result = asyncio.run(asyncio.wait_for(main(), 20))
    assert (result.reopened, result.unread) == (("a",), ("b",))


def test_a_copy_gets_all_output_as_it_comes(tmp_path):
    """For its owner alone, also while the command runs; a file that is there already is left alone."""
    copy = tmp_path / "copy.txt"

    async def main():
        command = ["sh", "-c", "head -c 200000 /dev/zero; echo end; sleep 60"]
        job = await Sandbox(spill_folder=str(tmp_path)).start(command, Profile(_made(tmp_path)), copy=str(copy))
        while job.output.total_bytes < 200_004:
            await asyncio.sleep(0.01)
        size, mode = copy.stat().st_size, copy.stat().st_mode & 0o777
        job.kill()
        await job.wait()
        return size, mode

    assert asyncio.run(asyncio.wait_for(main(), 20)) == (200_004, 0o600)
    taken = Capture(kept_bytes=10, most_bytes=100, copy=str(copy))
    assert taken.feed(b"more")
    assert taken.close().head == b"more"
    assert copy.stat().st_size == 200_004


def test_a_copy_that_cannot_be_written_ends_there(tmp_path, small_files):
    """The command and its output are not touched by that."""
    capture = Capture(kept_bytes=10_000_000, most_bytes=10_000_000, copy=str(tmp_path / "copy.txt"))
    assert capture.feed(b"x" * 200_000)
    assert capture.feed(b"y")
    assert capture.close().total_bytes == 200_001
    assert (tmp_path / "copy.txt").stat().st_size <= 100_000
