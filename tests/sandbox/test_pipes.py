"""A command that is talked to: lines in, lines out, and nothing left when it is over. In every tier that works here."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from lyra.sandbox import Limits, Profile
from lyra.sandbox.running_commands import _running

ECHO = ["sh", "-c", 'echo "on stderr" >&2; while read line; do echo "got $line"; done; echo bye']


def running(profile, sandbox, argv, work, **options):
    async def main():
        pipes = await sandbox.pipes(argv, profile, **options)
        try:
            return await asyncio.wait_for(work(pipes), 20)
        finally:
            pipes.kill()
            await pipes.wait()

    return asyncio.run(main())


def test_a_conversation(sandbox, tmp_path):
    """What is written is read, what it says comes back; stderr is kept apart; the end of stdin ends it."""

    async def work(pipes):
        for word in ("one", "two"):
            pipes.writer.write(f"{word}\n".encode())
            await pipes.writer.drain()
            assert await pipes.reader.readline() == f"got {word}\n".encode()
        result = await pipes.close()
        assert (result.exit_code, result.output.text) == (0, "on stderr\n")
        assert await pipes.reader.read() == b"bye\n"

    running(Profile(str(tmp_path)), sandbox, ECHO, work)


def test_one_that_does_not_want_to_end(sandbox, tmp_path):
    """Is killed with everything it started."""
    marks = tmp_path / "ticks"
    script = f"trap '' TERM HUP; (while true; do echo x >> {marks}; sleep 0.02; done) & while true; do sleep 1; done"

    async def work(pipes):
        while not marks.exists():
            await asyncio.sleep(0.01)
        began = time.monotonic()
        assert (await pipes.close(0.1)).exit_code == 137
        assert time.monotonic() - began < 5
        before = marks.stat().st_size
        await asyncio.sleep(0.1)
        assert marks.stat().st_size == before

    running(Profile(str(tmp_path)), sandbox, ["sh", "-c", script], work)


def test_one_that_ends_by_itself(sandbox, tmp_path):
    """Its last words can be read, and writing to it is an error and no waiting."""

    async def work(pipes):
        assert await pipes.reader.read() == b"last words\n"
        assert (await pipes.wait()).exit_code == 3
        pipes.writer.write(b"x" * 1_000_000)
        with pytest.raises(OSError):  # noqa: PT011 - a broken pipe, or a connection that is lost
            await pipes.writer.drain()
        await pipes.close()

    running(Profile(str(tmp_path)), sandbox, ["sh", "-c", "echo last words; exit 3"], work)


def test_a_line_that_is_too_long(sandbox, tmp_path):
    """Cannot be read as one, and does not fill the memory."""

    async def work(pipes):
        with pytest.raises(asyncio.LimitOverrunError):
            await pipes.reader.readuntil(b"\n")
        await pipes.close(0)

    argv = ["sh", "-c", "head -c 3000000 /dev/zero; sleep 60"]
    running(Profile(str(tmp_path)), sandbox, argv, work, line_bytes_max=1_000_000)


def test_the_limits_of_a_command_hold(sandbox, tmp_path):
    """Time, and what it may touch."""
    secret = tmp_path / "secret"
    secret.write_text("of mine")
    folder = tmp_path / "work"
    folder.mkdir()

    async def work(pipes):
        assert b"of mine" not in await pipes.reader.read()
        result = await pipes.wait()
        assert result.limits_hit == ("wall",)

    profile = Profile(str(folder), limits=Limits(wall_s=0.5))
    running(profile, sandbox, ["sh", "-c", f"cat {secret}; exec sleep 60"], work)


def test_descriptors_are_given_back(sandbox, tmp_path):
    """Eight conversations leave none behind."""

    async def main():
        for _ in range(2):
            pipes = await sandbox.pipes(ECHO, Profile(str(tmp_path)))
            await pipes.close()
        await asyncio.sleep(0)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(8):
            pipes = await sandbox.pipes(ECHO, Profile(str(tmp_path)))
            await pipes.close()
        await asyncio.sleep(0.05)
        return len(os.listdir("/proc/self/fd")) - before

    assert asyncio.run(main()) <= 0


def test_a_long_line_is_read_where_there_is_room_for_it(sandbox, tmp_path):
    async def work(pipes):
        assert len(await pipes.reader.readline()) == 1_500_001
        await pipes.close(0)

    argv = ["sh", "-c", "head -c 1500000 /dev/zero; echo; sleep 60"]
    running(Profile(str(tmp_path)), sandbox, argv, work, line_bytes_max=2_000_000)


def test_one_that_tidies_up_is_given_the_time_it_is_allowed(sandbox, tmp_path):
    async def work(pipes):
        assert await pipes.reader.readline() == b"ready\n"
        return await pipes.close(15)

    argv = ["sh", "-c", "echo ready; cat; sleep 2; exit 5"]
    assert running(Profile(str(tmp_path)), sandbox, argv, work).exit_code == 5


def test_a_caller_that_is_cancelled_while_it_closes_leaves_no_command(sandbox, tmp_path):
    """Also where the event loop ends right after: what protects the workspace while a command runs is over."""

    async def main():
        pipes = await sandbox.pipes(["sh", "-c", "echo on; sleep 600"], Profile(str(tmp_path)))
        assert await pipes.reader.readline() == b"on\n"
        closing = asyncio.ensure_future(pipes.close(grace_s=600))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not pipes.running

    asyncio.run(main())
    assert not _running
