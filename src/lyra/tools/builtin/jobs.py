"""Commands in the background: BashOutput and KillShell.

A job belongs to the process that started it: no other process sees it, and it is ended with that process or with its
kernel, whichever comes first, so that no program is left running without an owner. Output is shown once: each call of
BashOutput gives what is new since the last. A process that was restarted has lost the jobs from before; where a
`JobLog` keeps their record, BashOutput says so and gives the output that there was.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lyra.core.clock import SystemClock
from lyra.core.tool import Tool, caller, ending, job_log
from lyra.errors import ToolError
from lyra.tools.function import tool

if TYPE_CHECKING:
    from lyra.sandbox import Job, Output, Result


JOBS_MAX: Final = 16  # running, for one process
_KEPT_MAX: Final = 64  # jobs of one process that BashOutput still knows
_SHOWN_BYTES_MAX: Final = 30_000
_COMMAND_CHARS_MAX: Final = 200
_DIGITS_MAX: Final = 9
_PREFIX: Final = "bash_"  # of a job's name, before its number


class _Background:
    """One job, and how much of its output has been shown."""

    __slots__ = ("began_s", "command", "is_stopped", "job", "told")

    def __init__(self, job: Job, command: str) -> None:
        self.job = job
        self.command = command
        self.told = 0
        self.is_stopped = False  # a caller has ended it
        self.began_s = SystemClock().monotonic()

    def stop(self) -> None:
        self.is_stopped = self.is_stopped or self.job.running
        self.job.kill()

    @property
    def status(self) -> str:
        """Of a job that has ended."""
        return "stopped" if self.is_stopped else "done" if self.job.done.result().ok else "failed"


class Jobs:
    """The jobs of every process that uses one set of tools."""

    __slots__ = ("_of", "_started")

    def __init__(self) -> None:
        self._of: dict[str, dict[str, _Background]] = {}
        self._started: dict[str, int] = {}

    def tools(self) -> list[Tool]:
        """The two tools. They are not idempotent: output that was shown is not shown again."""
        return [
            tool(self.output, name="BashOutput", untrusted=True, harmless=True),
            tool(self.kill, name="KillShell", untrusted=True, harmless=True),
        ]

    # ------------------------------------------------------------ starting
    def check(self) -> None:
        """Refuse a job that no process would own, or one too many."""
        if ending.get() is None:
            raise ToolError(
                "a job in the background belongs to an agent's process, and there is none", reason="exec_failed"
            )
        running = [background for background in self._mine().values() if background.job.running]
        if len(running) >= JOBS_MAX:
            raise ToolError(f"{JOBS_MAX} jobs are running already", hint="end one with KillShell", reason="exec_failed")

    def reserve(self) -> tuple[int, str | None]:
        """The number of the next job, and the file that gets a copy of its output, if one does."""
        pid, log = caller.get(), job_log.get()
        self._started[pid] = number = max(self._started.get(pid, 0), log.last(pid) if log is not None else 0) + 1
        return number, log.copy_for(pid, number) if log is not None else None

    def add(self, number: int, job: Job, command: str) -> str:
        pid, end_with, log = caller.get(), ending.get(), job_log.get()
        assert end_with is not None
        mine = self._of.get(pid)
        if mine is None:
            mine = self._of[pid] = {}
            end_with(lambda: self._end(pid))
        name = f"{_PREFIX}{number}"
        background = mine[name] = _Background(job, command)
        if log is not None:
            log.started(pid, number, command, background.stop)
            job.done.add_done_callback(lambda done: log.ended(pid, number, background.status, _how(done.result())))
        for old in [known_name for known_name, known in mine.items() if not known.job.running][
            : max(0, len(mine) - _KEPT_MAX)
        ]:
            del mine[old]
        return f"started in the background as {name}; BashOutput tells how it goes, KillShell ends it"

    def _mine(self) -> dict[str, _Background]:
        return self._of.get(caller.get(), {})

    def _end(self, pid: str) -> list[asyncio.Future[Result]]:
        """End the jobs of a process that has ended. Returns futures that are done when the jobs are."""
        self._started.pop(pid, None)
        running = [background.job for background in self._of.pop(pid, {}).values() if background.job.running]
        for job in running:
            job.kill()
        return [job.done for job in running]

    # ------------------------------------------------------------ the tools
    async def output(self, bash_id: str) -> str:
        """What a job in the background has printed since it was last looked at, and whether it still runs.

        Args:
            bash_id: its name, as Bash gave it
        """
        earlier = self._earlier(bash_id)
        if earlier is not None:
            return earlier
        known = self._find(bash_id)
        new = _new(known)
        job = known.job
        if job.running:
            seconds = SystemClock().monotonic() - known.began_s
            return _with_note(new or "(nothing new)", f"{bash_id} is running, for {seconds:.1f} s")
        result = await job.wait()
        return _with_note(new or "(nothing new)", f"{bash_id} has ended: {_how(result)}")

    async def kill(self, bash_id: str) -> str:
        """End a job in the background, and everything that it started.

        Args:
            bash_id: its name, as Bash gave it
        """
        earlier = self._earlier(bash_id)
        if earlier is not None:
            return earlier
        known = self._find(bash_id)
        was_running = known.job.running
        known.stop()
        result = await known.job.wait()
        new = _new(known)
        note = f"{bash_id} was ended" if was_running else f"{bash_id} had ended before: {_how(result)}"
        return _with_note(new, note) if new else note

    def _earlier(self, bash_id: str) -> str | None:
        """What is known of a job that ended with an earlier life of the process."""
        log, number = job_log.get(), bash_id.removeprefix(_PREFIX)
        if log is None or bash_id in self._mine() or number == bash_id or not (number.isascii() and number.isdecimal()):
            return None
        return log.earlier(caller.get(), int(number[:_DIGITS_MAX]))

    def _find(self, bash_id: str) -> _Background:
        mine = self._mine()
        background = mine.get(bash_id)
        if background is None:
            there = "; ".join(f"{name}: {known.command[:_COMMAND_CHARS_MAX]}" for name, known in mine.items())
            raise ToolError(
                f"there is no job {bash_id[:80]!r}", hint=f"there are {there or 'none'}", reason="not_found"
            )
        return background


def _new(known: _Background) -> str:
    """The output since the last call: all of it, or head and tail where it is long."""
    output = known.job.output
    start, known.told = known.told, output.total_bytes
    length = output.total_bytes - start
    if length <= _SHOWN_BYTES_MAX:
        return known.job.since(start, most_bytes=length).decode("utf-8", "replace")
    half = _SHOWN_BYTES_MAX // 2
    head = known.job.since(start, most_bytes=half)
    tail = known.job.since(output.total_bytes - half, most_bytes=half)
    note = _left_out(length - 2 * half, output)
    return f"{head.decode('utf-8', 'replace')}\n{note}\n{tail.decode('utf-8', 'replace')}"


# ---------------------------------------------------------------- how a command ended
def ended(result: Result) -> str:
    """The text of a command that has ended; a ToolError with the same text where it failed."""
    output = result.output
    text = output.head.decode("utf-8", "replace")
    if output.left_out_bytes:
        text += f"\n{_left_out(output.left_out_bytes, output)}\n"
    text = _with_note(text + output.tail.decode("utf-8", "replace"), _how(result))
    if result.ok:
        return text
    reason = "timeout" if "wall" in result.limits_hit else "exec_failed"
    raise ToolError(text, reason=reason, exit_code=result.exit_code, limits_hit=list(result.limits_hit))


def _left_out(count: int, output: Output) -> str:
    where = f"all of it is in {output.file}" if output.file else "no file could be written for them"
    return f"… {count} bytes left out; {where} …"


def _with_note(text: str, note: str) -> str:
    return f"{text.rstrip()}\n[{note}]" if text.strip() else f"[{note}]"


_LIMITS: Final = {
    "wall": "it took too long and was ended",
    "cpu": "processor time",
    "memory": "memory",
    "file_size": "size of a file",
    "processes": "number of processes",
    "output": "amount of output",
    "search": "the workspace could not be searched to its end, so protected paths in it may be new",
}


def _how(result: Result) -> str:
    """Exit code, limits, time, sandbox, and what the sandbox could not prevent or had to repair."""
    notes = [f"exit code {result.exit_code}"]
    if result.limits_hit:
        notes.append("limit hit: " + ", ".join(_LIMITS.get(name, name) for name in result.limits_hit))
    notes.append(f"{result.duration_s:.1f} s")
    holes = f", which does not hold everything: {'; '.join(result.holes)}" if result.holes else ""
    notes.append(f"sandbox {result.tier}{holes}")
    if result.appeared:
        notes.append(f"protected paths that are new: {', '.join(result.appeared[:10])}")
    if result.put_back:
        notes.append(f"protected links that were put back as they were: {', '.join(result.put_back[:10])}")
    if result.reopened:
        notes.append(f"folders that were shut, and are open to their owner again: {', '.join(result.reopened[:10])}")
    if result.unread:
        notes.append(f"folders that cannot be looked through, and were shown empty: {', '.join(result.unread[:10])}")
    if result.set_aside:
        notes.append(f"nothing may make those: they were renamed to {', '.join(result.set_aside[:10])}")
    refused = [line for line in result.egress if line.startswith("refused")]
    if refused:
        notes.append(f"network: {'; '.join(refused[:5])}")
    return " · ".join(notes)
