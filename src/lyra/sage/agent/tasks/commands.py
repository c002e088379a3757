"""TaskCommands: the background commands of a session, on record: the line, how it ended, and its output in a file.

A command runs no longer than the session that started it, by `lyra.tools.builtin.bash`. What it had printed by then is
in the session's folder, so that a session which is opened again can say what became of it. Nothing is run here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lyra.agents.session.shared import runtime_of
from lyra.core.own_files import make_folder
from lyra.sage.agent.tasks.state import StoredTask, TaskState

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


OUTPUT_BYTES_MAX: Final = 30_000  # that are shown, from the end
_LINE_CHARS_MAX: Final = 10_000
_KEPT_MAX: Final = 200  # commands on record; the oldest that ended are forgotten


class TaskCommands:
    """A JobLog. The id of a command of the session's own agent is `bash_1`, that of a sub-agent's `PID.bash_1`.

    `over` is called with a command that has ended by itself; one that was stopped is no news."""

    def __init__(
        self, state: TaskState, folder: Path, own_pid: str, *, over: Callable[[StoredTask], object] | None = None
    ) -> None:
        self._state = state
        self._over = over
        self._folder = folder
        self._own_pid = own_pid
        self._kernel: Kernel | None = None
        self._running: dict[str, Callable[[], None]] = {}  # ids, in this life → what stops it

    def open(self, kernel: Kernel) -> None:
        self._kernel = kernel
        runtime_of(kernel).job_log = self

    def id_of(self, pid: str, number: int) -> str:
        return f"bash_{number}" if pid == self._own_pid else f"{pid}.bash_{number}"

    # ------------------------------------------------------------------ told by the tools

    def last(self, pid: str) -> int:
        return max((task.number for task in self._commands() if task.caller == pid), default=0)

    def copy_for(self, pid: str, number: int) -> str | None:
        with suppress(OSError):
            make_folder(self._folder, private=True)
            return str(self._file(self.id_of(pid, number)))
        return None

    def started(self, pid: str, number: int, command: str, stop: Callable[[], None]) -> None:
        kernel = self._kernel
        assert kernel is not None
        task_id = self.id_of(pid, number)
        self._forget_old()
        self._running[task_id] = stop
        line = runtime_of(kernel).clean(command)[:_LINE_CHARS_MAX]
        facts = {"id": task_id, "kind": "command", "name": "Bash", "description": line, "number": number}
        kernel.fact(self._state, pid, "task.began", facts)

    def ended(self, pid: str, number: int, status: str, how: str) -> None:
        kernel, task_id = self._kernel, self.id_of(pid, number)
        assert kernel is not None
        if kernel.stopping or kernel.failure is not None:  # it ends with its session, and the store takes no more
            return
        self._running.pop(task_id, None)
        text = runtime_of(kernel).clean(how)
        kernel.fact(self._state, pid, "task.ended", {"id": task_id, "status": status, "text": text})
        task = self._state.tasks.get(task_id)
        if task is not None and self._over is not None and status != "stopped":
            self._over(task)

    def earlier(self, pid: str, number: int) -> str | None:
        task = self._state.tasks.get(self.id_of(pid, number))
        if task is None or task.id in self._running:
            return None
        how = task.text if task.status else "it ended with the session that had started it"
        return f"{self.output(task)}\n[{task.id} does not run any more: {how}]".lstrip()

    # ------------------------------------------------------------------ shown

    def state_of(self, task: StoredTask) -> str:
        return task.status or ("running" if task.id in self._running else "lost")

    def stop(self, task: StoredTask) -> bool:
        """End a command and everything that it started; False where it does not run."""
        stop = self._running.get(task.id)
        if stop is not None:
            stop()
        return stop is not None

    def output(self, task: StoredTask, most_bytes: int = OUTPUT_BYTES_MAX) -> str:
        """The end of what a command has printed so far."""
        try:
            with open(self._file(task.id), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most_bytes))
                text = file.read(most_bytes).decode("utf-8", "replace")
        except OSError:
            return ""
        left_out = f"… {size - most_bytes} bytes left out …\n" if size > most_bytes else ""
        return left_out + (runtime_of(self._kernel).clean(text) if self._kernel is not None else text)

    def _commands(self) -> Iterator[StoredTask]:
        return (task for task in self._state.tasks.values() if task.kind == "command")

    def _file(self, task_id: str) -> Path:
        return self._folder / f"{task_id}.txt"

    def _forget_old(self) -> None:
        """Keep the record short. The numbers of a process are not given again: its last command stays."""
        kernel = self._kernel
        assert kernel is not None
        known = list(self._commands())
        for task in known[: max(0, len(known) - _KEPT_MAX + 1)]:
            if task.id not in self._running and task.number != self.last(task.caller):
                kernel.fact(self._state, task.caller, "task.forgotten", {"id": task.id})
                with suppress(OSError):
                    self._file(task.id).unlink()
