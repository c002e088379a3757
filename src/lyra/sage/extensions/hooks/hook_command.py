"""HookCommand: a hook that is a program: JSON on its stdin, an answer on its stdout, and its exit code.

    exit 0   the answer is what it printed          exit 2   deny, with what it wrote on stderr as the reason
    another exit code, a signal, a time-out, too much output, no such program, an answer that cannot be read: HookFailed

It runs in the sandbox, with the session's folder to write in and no network, unless its `sandbox` is False, which only
the user's own file can say: then it runs with the user's rights and a few variables of their environment, of which none
is a key. Everything it starts ends with it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.hook_events import HOOK_EVENTS
from lyra.core.rights.capability import Grant
from lyra.errors import LyraError
from lyra.sage.extensions.hooks.answer import HookAnswer, HookFailed, read_answer

if TYPE_CHECKING:
    from lyra.sandbox import Result, Sandbox


OUTPUT_BYTES_MAX: Final = 256 * 1024  # of stdout, and of stderr
_REASON_CHARS_MAX: Final = 2_000
_DENIES: Final = 2  # the exit code
_SIGNALS: Final = 128  # exit codes above it: the number of the signal that ended the program
_ENVIRONMENT: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "TMPDIR"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "NO_COLOR"),
)


class HookCommand:
    """`words` is a line for the shell or a list of words. `base` is the folder in which it starts, and from which a
    relative program is taken; "" is the session's."""

    __slots__ = ("_base", "_in_sandbox", "_words")

    def __init__(self, words: str | Sequence[str], *, in_sandbox: bool = True, base: str = "") -> None:
        self._words = words if isinstance(words, str) else tuple(words)
        self._in_sandbox = in_sandbox
        self._base = base

    @property
    def text(self) -> str:
        return self._words if isinstance(self._words, str) else " ".join(self._words)

    async def answer(
        self, event: str, data: Mapping[str, Any], *, folder: str, sandbox: Sandbox, timeout_s: float
    ) -> HookAnswer:
        """Run it with these fields in a folder, named by its real path; raises HookFailed."""
        payload = msgspec.json.encode(data, enc_hook=str) + b"\n"
        try:
            if self._in_sandbox:
                result = await self._run_inside(payload, folder, sandbox, timeout_s)
            else:
                result = await self._run_outside(payload, folder, timeout_s)
        except (LyraError, OSError) as error:
            raise HookFailed(f"it could not be started: {error}") from None
        return _answer_of(event, result, timeout_s)

    async def _run_inside(self, payload: bytes, folder: str, sandbox: Sandbox, timeout_s: float) -> Result:
        from lyra.sandbox import Profile

        grant = Grant([f"fs.read:{folder}/**", f"fs.write:{folder}/**"])
        readable = [path for path in (self._base, self._program()) if path.startswith("/")]
        profile = Profile.of(grant, folder, readable=readable, limits=_limits(timeout_s))
        if self._base:
            profile = replace(profile, start=self._base)
        return await sandbox.run(self._argv(), profile, stdin=payload, timeout_s=timeout_s, apart=True)

    async def _run_outside(self, payload: bytes, folder: str, timeout_s: float) -> Result:
        from lyra.sandbox.job import Job, LaunchPlan

        env = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        argv = self._argv()
        program = shutil.which(argv[0], path=env.get("PATH"))
        if program is None:
            raise HookFailed(f"there is no program {argv[0]}")
        plan = LaunchPlan([program, *argv[1:]], env, self._base or folder, "none")
        job = Job(plan, _limits(timeout_s), stdin=payload, timeout_s=timeout_s, apart=True, spill=None)
        try:
            return await job.wait()
        except asyncio.CancelledError:
            await job.end()
            raise

    def _argv(self) -> list[str]:
        if isinstance(self._words, str):
            return ["/bin/sh", "-c", _expanded(self._words)]
        return [_expanded(self._words[0]), *self._words[1:]]

    def _program(self) -> str:
        """The first word, with the home folder in place of `~`: in the sandbox its file can be read."""
        first = self._words.split()[0] if isinstance(self._words, str) else self._words[0]
        return _expanded(first)


def _expanded(text: str) -> str:
    return os.path.expanduser("~/") + text[2:] if text.startswith("~/") else text


def _limits(timeout_s: float) -> Any:
    from lyra.sandbox import Limits

    wall_s = max(timeout_s, Limits().wall_s)
    return Limits(wall_s=wall_s, output_bytes=OUTPUT_BYTES_MAX, output_kept_bytes=OUTPUT_BYTES_MAX)


def _answer_of(event: str, result: Result, timeout_s: float) -> HookAnswer:
    errors = result.errors.text.strip()[:_REASON_CHARS_MAX]
    if "wall" in result.limits_hit:
        raise HookFailed(f"it took longer than {timeout_s:g} s")
    if "output" in result.limits_hit:
        raise HookFailed(f"it printed more than {OUTPUT_BYTES_MAX} bytes")
    if result.limits_hit:
        raise HookFailed(f"it reached its limits: {', '.join(result.limits_hit)}")
    if result.exit_code == _DENIES and "deny" in HOOK_EVENTS[event].answers:
        return HookAnswer(decision="deny", reason=errors)
    if result.exit_code > _SIGNALS:
        raise HookFailed(f"it was ended by the signal {result.exit_code - _SIGNALS}")
    if result.exit_code != 0:
        raise HookFailed(f"its exit code is {result.exit_code}" + (f": {errors}" if errors else ""))
    return read_answer(event, result.output.text)
