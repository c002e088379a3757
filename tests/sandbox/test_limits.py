"""Every limit holds, and the end of a command is the end of everything it started."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

from lyra.core.ids import Entropy
from lyra.errors import ConfigError, SandboxUnavailable
from lyra.sandbox import Limits, Profile, Sandbox, cgroup, landlock
from lyra.sandbox import sandbox as sandbox_module
from tests.sandbox.world import PYTHON, survivors


@pytest.fixture
def token() -> str:
    return f"token-{Entropy().text(16)}"


@pytest.fixture
def run(sandbox, tmp_path, token):
    def run(code, *, stdin=None, timeout_s=None, apart=False, **limits):
        given = {"wall_s": 20.0, "memory_bytes": 512 * 2**20, "processes": 64} | limits
        profile = Profile(str(tmp_path), readable=(sys.base_prefix,), env={"TOKEN": token}, limits=Limits(**given))
        argv = [PYTHON, "-IS", "-c", code] if "import" in code else ["sh", "-c", code]
        return asyncio.run(sandbox.run(argv, profile, stdin=stdin, timeout_s=timeout_s, apart=apart))

    return run


def test_exit_codes_and_streams(run):
    """Results are the command's own: code, output, errors, input; signals count from 128."""
    assert run("exit 7").exit_code == 7
    assert run("kill -9 $$").exit_code == 137
    assert run("no-such-program").exit_code == 127
    both = run("echo out; echo err >&2")
    assert sorted(both.output.text.split()) == ["err", "out"]
    apart = run("echo out; echo err >&2", apart=True)
    assert (apart.output.text, apart.errors.text) == ("out\n", "err\n")
    assert run("cat", stdin=b"x" * 300_000).output.total_bytes == 300_000
    assert run("true", stdin=b"x" * 300_000).ok


def test_wall_time(run, token):
    """Past its time everything is dead, also what ignores signals or has stopped itself."""
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN); time.sleep(60)"
    result = run(code, timeout_s=0.5)
    assert result.limits_hit == ("wall",)
    assert result.exit_code == 137
    assert not result.ok
    assert result.duration_s < 5
    stopped = run("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", timeout_s=0.5)
    assert stopped.limits_hit == ("wall",)
    assert survivors(token) == []


def test_the_profile_bounds_the_time_that_is_asked_for(run):
    """A caller cannot ask for more than the profile allows."""
    assert run("sleep 60", timeout_s=60.0, wall_s=0.3).limits_hit == ("wall",)


_DAEMON = """
import os, time
if os.fork(): time.sleep(0.2); os._exit(0)
try: os.setsid()
except OSError: pass
if os.fork(): os._exit(0)
for n in (0, 1, 2): os.close(n)
time.sleep(60)
"""


def test_no_daemon_survives(run, token):
    """Double fork and a session of its own: dead when the command ends."""
    result = run(_DAEMON)
    assert result.exit_code == 0
    assert result.duration_s < 5
    assert survivors(token) == []


def test_a_child_that_keeps_the_pipe_does_not_hold_up_the_end(run, token):
    """The command is over when its leader is."""
    result = run("sleep 60 & echo done")
    assert result.output.text == "done\n"
    assert result.duration_s < 5
    assert survivors(token) == []


_COUNT = """
import os, time
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n)
"""


def test_fork_bomb(run, token):
    """It stays small or is killed; nothing of it is left."""
    bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
    result = run(bomb, timeout_s=1.5, processes=32)
    assert "wall" in result.limits_hit
    assert survivors(token) == []
    counted = run(_COUNT, processes=32)
    if os.getuid() == 0 and "processes" not in counted.limits_hit:
        pytest.skip("root is counted by control groups alone, and there are none here")
    assert int(counted.output.text) < 64
    assert survivors(token) == []


def test_memory_bomb(run):
    """More than its memory: refused or killed, and the machine does not notice."""
    result = run("import time\nx = []\nwhile True: x.append(bytearray(1 << 24))", memory_bytes=128 * 2**20)
    assert result.exit_code != 0
    assert "MemoryError" in result.output.text or "memory" in result.limits_hit


def test_output_flood(run, token):
    """Killed at the limit; the head and the tail are kept, the rest is in a file."""
    result = run("yes", output_bytes=2**20, output_kept_bytes=1024)
    assert result.limits_hit == ("output",)
    assert result.output.total_bytes == 2**20
    assert len(result.output.head) == len(result.output.tail) == 512
    assert f"{2**20 - 1024} bytes left out" in result.output.text
    assert result.output.file is not None
    assert os.path.getsize(result.output.file) == 2**20
    os.unlink(result.output.file)
    assert survivors(token) == []


def test_long_output_spills(run):
    """All of it is in the file that the text names."""
    result = run("import sys\nfor n in range(20000): print(n)", output_kept_bytes=2000)
    assert result.ok
    assert result.output.text.startswith("0\n1\n")
    assert result.output.text.endswith("19999\n")
    assert result.output.file is not None
    assert result.output.file in result.output.text
    with open(result.output.file) as file:
        assert file.read() == "".join(f"{n}\n" for n in range(20000))
    os.unlink(result.output.file)


def test_cpu_time(run):
    """A busy loop ends by the limit of processor time."""
    result = run("while :; do :; done", cpu_s=1)
    assert result.exit_code in (137, 152)
    assert result.duration_s < 15


def test_file_size(run, tmp_path):
    """No file grows past the limit."""
    run("head -c 3000000 /dev/zero > big", file_bytes=100_000)
    assert (tmp_path / "big").stat().st_size <= 100_000


def test_open_files(run):
    """Descriptors run out where the limit says."""
    code = "import os\nn = 0\ntry:\n while True: os.dup(0); n += 1\nexcept OSError: print(n)"
    assert int(run(code, open_files=50).output.text) <= 50


def test_limits_are_checked():
    """Zero would mean none or nothing, so it is refused."""
    with pytest.raises(ConfigError, match="wall_s"):
        Limits(wall_s=0)


def test_cancel_kills_everything_first(sandbox, tmp_path, token):
    """When the cancellation arrives at the caller, nothing runs any more, and it arrives at once; also where a second
    one follows before everything is gone."""

    async def main() -> float:
        profile = Profile(str(tmp_path), env={"TOKEN": token})
        await sandbox.tier()
        open_files = len(os.listdir("/proc/self/fd"))
        task = asyncio.ensure_future(sandbox.run(["sh", "-c", "sleep 60 & sleep 60"], profile))
        await asyncio.sleep(0.3)
        assert survivors(token)
        began = time.monotonic()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert survivors(token) == []
        assert len(os.listdir("/proc/self/fd")) == open_files
        return time.monotonic() - began

    assert asyncio.run(main()) < 2


_OUTLIVED = """
import asyncio, sys
from lyra.sandbox import Profile, Sandbox

async def main():
    profile = Profile(sys.argv[1], env={"TOKEN": sys.argv[3]})
    script = "(setsid sleep 61 || sleep 62) & (sh -c 'sleep 63 & sleep 64' &) ; trap '' TERM HUP; sleep 65"
    job = await Sandbox(tiers=(sys.argv[2],)).start(["sh", "-c", script], profile)
    print(job.pid, flush=True)
    await job.wait()

asyncio.run(main())
"""


def _sleepers(token: str) -> int:
    """How many of them run, and Lyra: five or more."""
    for _ in range(200):
        if len(survivors(token)) >= 5:
            break
        time.sleep(0.02)
    return len(survivors(token))


def test_nothing_outlives_lyra(tier, tmp_path, token):
    """Killed outright: what its commands started, in the background and in other sessions, dies with it."""
    argv = [sys.executable, "-c", _OUTLIVED, str(tmp_path), tier, token]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as lyra:
        assert lyra.stdout is not None
        lyra.stdout.readline()
        assert _sleepers(token) >= 5
        lyra.kill()
    for _ in range(200):
        if survivors(token) == []:
            break
        time.sleep(0.02)
    assert survivors(token) == []


def test_the_reaper_is_out_of_reach(run, token):
    """A command cannot kill or stop the process that ends everything with it; its end is still told."""
    if landlock.abi() < 6:
        pytest.skip("this kernel cannot stop signals to other processes")
    result = run("kill -9 $PPID; kill -STOP $PPID; sleep 60 & exit 7")
    assert result.exit_code == 7
    assert result.duration_s < 10
    assert survivors(token) == []


def test_background_job(sandbox, tmp_path, token):
    """A handle: output so far, still running, killed, and the result as often as it is asked."""

    async def main() -> None:
        profile = Profile(str(tmp_path), env={"TOKEN": token})
        job = await sandbox.start(["sh", "-c", "echo first; sleep 60"], profile)
        while not job.output.total_bytes:
            await asyncio.sleep(0.01)
        assert job.output.text == "first\n"
        assert job.running
        job.kill()
        result = await job.wait()
        assert result.exit_code == 137
        assert (await job.wait()) is result
        assert not job.running
        job.kill()

    asyncio.run(main())
    assert survivors(token) == []


def test_nothing_is_left_behind(run, tmp_path, monkeypatch):
    """Descriptors, temporary folders and control groups are gone after the run."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    run("true")
    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    make, groups = cgroup.make, []

    def noted(*given):
        groups.append(make(*given))
        return groups[-1]

    monkeypatch.setattr(cgroup, "make", noted)
    run("echo x > $HOME/file; mkdir -p $TMPDIR/a/b")
    assert list(folder.iterdir()) == []
    assert [file for group in groups if group for file in group.files if os.path.exists(file)] == []
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_what_appeared_is_told(run, tmp_path):
    """A protected path that was not there cannot be held shut, but it is seen."""
    result = run("mkdir -p sub/.git/hooks; echo x > sub/.git/hooks/pre-commit; echo y > .env")
    assert result.appeared == (".env", "sub/.git")
    assert run("true").appeared == ()


def test_without_a_tier_nothing_runs(tmp_path, monkeypatch):
    """Refused, with what is missing; leaving every tier out is a refusal too, not a way round."""
    with pytest.raises(SandboxUnavailable, match="no sandbox works"):
        asyncio.run(Sandbox(tiers=()).run(["true"], Profile(str(tmp_path))))
    with pytest.raises(ConfigError, match="no sandbox tier"):
        Sandbox(tiers=("none",))
    monkeypatch.setattr(sandbox_module, "_known", {})
    monkeypatch.setattr("lyra.sandbox.bubblewrap.shutil.which", lambda *_, **__: None)
    monkeypatch.setattr("lyra.sandbox.landlock.abi", lambda: 0)
    with pytest.raises(SandboxUnavailable) as caught:
        asyncio.run(Sandbox().run(["true"], Profile(str(tmp_path))))
    assert "apt-get install bubblewrap" in (caught.value.hint or "")
    assert "landlock is version 0" in (caught.value.hint or "")


def test_another_system_says_what_is_missing(tmp_path, monkeypatch):
    """The same interface, a refusal, and a sentence."""
    monkeypatch.setattr(sandbox_module, "_known", {})
    monkeypatch.setattr("lyra.sandbox.sandbox.sys.platform", "darwin")
    with pytest.raises(SandboxUnavailable) as caught:
        asyncio.run(Sandbox().run(["true"], Profile(str(tmp_path))))
    assert "for Linux" in (caught.value.hint or "")


def test_a_tier_that_does_not_hold_is_not_used(tmp_path, monkeypatch):
    """The probe runs a real act that must be denied: a bubblewrap that opens everything is found out."""
    fake = tmp_path / "bwrap"
    fake.write_text(
        '#!/bin/sh\nwhile [ "$1" != "--" ]; do case "$1" in --chdir) cd "$2";; esac; shift; done\nshift\nexec "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sandbox_module, "_known", {})
    monkeypatch.setattr("lyra.sandbox.bubblewrap.shutil.which", lambda *_, **__: str(fake))
    with pytest.raises(SandboxUnavailable) as caught:
        asyncio.run(Sandbox(tiers=("bubblewrap",)).tier())
    assert "does not hold" in (caught.value.hint or "")


def test_a_command_is_words(sandbox, tmp_path):
    """Nothing, or a NUL, is no command."""
    for argv in ([], [""], ["a\0b"]):
        with pytest.raises(ConfigError):
            asyncio.run(sandbox.run(argv, Profile(str(tmp_path))))


def test_the_limit_of_processes_is_set(sandbox, tmp_path, monkeypatch):
    """As a limit of the kernel where no control group counts them: that many more than run already."""
    monkeypatch.setattr(cgroup, "make", lambda *_, **__: None, raising=False)

    def limit(processes):
        profile = Profile(str(tmp_path), limits=Limits(processes=processes))
        return int(asyncio.run(sandbox.run(["bash", "-c", "ulimit -u"], profile)).output.text)

    assert limit(900) - limit(100) > 400
