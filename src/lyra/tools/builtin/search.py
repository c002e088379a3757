"""Glob and Grep: searches of the workspace, done by a separate process (`search_worker`).

Secrets and files that a rule denies to read are left out of the answers (`Workspace.hidden`). Answers are in one order
(Glob: newest first; Grep: by path and line), bounded, and say when there is more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.tools.builtin.search_worker import ROWS_MAX
from lyra.tools.builtin.workspace import Workspace, check_admitted
from lyra.tools.function import tool

SEARCH_S_MAX: Final = 30.0
_GLOB_ROWS_MAX: Final = 1_000
_GREP_ROWS_DEFAULT: Final = 250
_PATTERN_CHARS_MAX: Final = 10_000
_CONTEXT_MAX: Final = 1_000
_CHARS_MAX: Final = 100_000
_ROWS_A_STEP: Final = 200
_SPARE_ROWS: Final = 50  # requested in addition, because some rows may be hidden
_WORKER: Final = os.path.join(os.path.dirname(__file__), "search_worker.py")
AT_ONCE: Final = max(4, os.cpu_count() or 1)  # more searches than processors are not faster

TYPES: Final[dict[str, tuple[str, ...]]] = {
    "c": ("*.c", "*.h"),
    "cpp": ("*.cpp", "*.cc", "*.cxx", "*.hpp", "*.hh", "*.h"),
    "css": ("*.css", "*.scss"),
    "go": ("*.go",),
    "html": ("*.html", "*.htm"),
    "java": ("*.java",),
    "js": ("*.js", "*.mjs", "*.cjs", "*.jsx"),
    "json": ("*.json",),
    "md": ("*.md", "*.markdown"),
    "py": ("*.py", "*.pyi"),
    "rust": ("*.rs",),
    "sh": ("*.sh", "*.bash"),
    "sql": ("*.sql",),
    "toml": ("*.toml",),
    "ts": ("*.ts", "*.tsx", "*.mts", "*.cts"),
    "txt": ("*.txt",),
    "yaml": ("*.yaml", "*.yml"),
}


def search_tools(workspace: Workspace, *, ripgrep: bool = True, seconds_max: float = SEARCH_S_MAX) -> list[Tool]:
    """Glob and Grep; without `ripgrep` Grep never uses that program."""
    family = _SearchTools(workspace, ripgrep, seconds_max)

    def needs_of(arguments: dict[str, Any]) -> list[Capability]:
        return workspace.need("fs.read", arguments.get("path"))

    options: dict[str, Any] = {
        "idempotent": True,
        "untrusted": True,
        "folders": workspace.roots,
    }  # names of files are untrusted text, too
    return [
        tool(family.glob, name="Glob", needs_of=needs_of, **options),
        tool(family.grep, name="Grep", needs_of=needs_of, **options),
    ]


class _SearchTools:
    __slots__ = ("_ripgrep", "_seconds_max", "_workspace")

    def __init__(self, workspace: Workspace, ripgrep: bool, seconds_max: float) -> None:
        self._workspace = workspace
        self._ripgrep = ripgrep
        self._seconds_max = seconds_max

    async def glob(self, pattern: str, path: str | None = None) -> str:
        """Find files by name, newest first. Folders of tools and dependencies (.git, node_modules, …) are left out.

        Args:
            pattern: such as src/**/*.py or *.{ts,tsx}; without a slash it matches at any depth
            path: the folder to look in; the workspace if left out
        """
        root, file = self._place(path)
        if file is not None:
            raise ToolError(f"{path} is a file", hint="use Read", reason="not_a_folder")
        job = {"kind": "glob", "root": root, "globs": [_check_pattern(pattern)]}
        names, more = await self._rows_of(job, _GLOB_ROWS_MAX, numbers=False)
        return _join_rows(names[:_GLOB_ROWS_MAX], more=more, none="no file has such a name")

    async def grep(
        self,
        pattern: str,
        path: str | None = None,
        *,
        glob: str | None = None,
        type: str | None = None,  # noqa: A002 - the name that models know
        output_mode: Literal["files_with_matches", "content", "count"] = "files_with_matches",
        ignore_case: bool = False,
        multiline: bool = False,
        before: int = 0,
        after: int = 0,
        context: int = 0,
        line_numbers: bool = True,
        head_limit: int = _GREP_ROWS_DEFAULT,
        offset: int = 0,
    ) -> str:
        """Search the text of files with a regular expression.

        Args:
            pattern: a regular expression
            path: the folder or file to search; the workspace if left out
            glob: only files with such names, as for Glob
            type: only files of a kind, such as py, js, rust, md
            output_mode: files_with_matches gives paths, content the lines, count how many lines in each file
            ignore_case: whether A and a are the same
            multiline: whether a match may span lines
            before: lines to show before each match
            after: lines to show after each match
            context: lines to show before and after each match
            line_numbers: whether lines are shown with their numbers
            head_limit: how many rows to show at most
            offset: how many rows to pass over first
        """
        root, file = self._place(path)
        if min(before, after, context, offset) < 0 or max(before, after, context) > _CONTEXT_MAX or head_limit < 1:
            raise ToolError(
                f"before, after and context are between 0 and {_CONTEXT_MAX}, head_limit is 1 or more",
                reason="invalid_arguments",
            )
        lines = output_mode == "content"
        job = {
            "kind": "grep",
            "root": root,
            "file": file,
            "pattern": _check_pattern(pattern),
            "globs": [_check_pattern(glob)] if glob else [],
            "kinds": _kinds(type),
            "mode": output_mode,
            "ignore_case": ignore_case,
            "multiline": multiline,
            "before": max(before, context) if lines else 0,
            "after": max(after, context) if lines else 0,
            "ripgrep": self._ripgrep,
        }
        rows, more = await self._rows_of(job, offset + head_limit, numbers=line_numbers)
        shown = rows[offset : offset + head_limit]
        return _join_rows(shown, more=more, none="nothing matches", next_offset=offset + len(shown))

    def _place(self, path: str | None) -> tuple[str, str | None]:
        """Return the folder to search, and the file in it where one was named; inside the workspace, by its real
        name."""
        workspace = self._workspace
        real = os.path.realpath(workspace.absolute(path)) if path else workspace.root
        check_admitted(real, path or ".")
        if not workspace.covers(real):
            raise ToolError(f"{path} is outside the workspace", reason="permission_denied")
        if os.path.isdir(real):
            return real, None
        if not os.path.isfile(real):
            raise ToolError(f"there is no {path}", reason="not_found")
        return os.path.dirname(real), os.path.basename(real)

    def _render_path(self, root: str, name: str) -> str:
        shown = self._workspace.display_path(os.path.join(root, name))
        return (
            shown if shown.isascii() else os.fsencode(shown).decode("utf-8", "replace")
        )  # names of files may be any bytes

    async def _rows_of(self, job: dict[str, Any], wanted: int, *, numbers: bool) -> tuple[list[str], bool]:
        """At least the first `wanted` rows, if there are as many, and whether there are more.

        The worker sends only a few more than that: reading thousands of rows that are not shown would block the
        kernel's loop. If too many of them are hidden, it is asked again for all.
        """
        for most in (wanted + _SPARE_ROWS, ROWS_MAX):
            answer = await self._ask({**job, "most": most})
            rows = await self._rows(job["root"], answer["rows"], numbers=numbers)
            if not answer["more"] or len(rows) > wanted or most >= ROWS_MAX:
                break
        return rows, answer["more"] or len(rows) > wanted

    async def _rows(self, root: str, rows: list[Any], *, numbers: bool) -> list[str]:
        names: dict[str, str | None] = {}
        out: list[str] = []
        for number, row in enumerate(rows, start=1):
            if number % _ROWS_A_STEP == 0:
                await asyncio.sleep(0)  # rules are checked for each file: let other tasks run in between
            name = row if isinstance(row, str) else row[0]
            if name not in names:
                names[name] = None if self._workspace.hides(os.path.join(root, name)) else self._render_path(root, name)
            shown = names[name]
            if shown is None:
                continue
            if isinstance(row, str):
                out.append(shown)
            elif len(row) == 2:
                out.append(f"{shown}:{row[1]}")
            else:
                mark = ":" if row[3] else "-"
                out.append(f"{shown}{mark}{row[1]}{mark}{row[2]}" if numbers else f"{shown}{mark}{row[2]}")
        return out

    async def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        gate = _Gate.get_current()
        async with gate.running:
            async with gate.starting:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", _WORKER),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
            hint = "search a smaller folder, or with a simpler pattern"
            answer = await ask_worker(process, job, what="the search", seconds_max=self._seconds_max, hint=hint)
            if answer is None:
                raise ToolError("the search ended before it was done", reason="io_error")
            if "error" in answer:
                raise ToolError(answer["error"], hint="escape what is meant literally", reason="invalid_arguments")
            return answer


async def ask_worker(
    process: asyncio.subprocess.Process, job: dict[str, Any], *, what: str, seconds_max: float, hint: str
) -> dict[str, Any] | None:
    """Return what a worker in a session of its own answers to a job, both as JSON; None where it ended without an
    answer. One that takes too long is killed, with what it started."""
    try:
        async with asyncio.timeout(seconds_max):
            output, _ = await process.communicate(json.dumps(job).encode())
    except TimeoutError:
        raise ToolError(f"{what} took longer than {seconds_max:g} s", hint=hint, reason="timeout") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    answer: dict[str, Any] | None = json.loads(output) if process.returncode == 0 else None
    return answer


class _Gate:
    """Limits the searches of one loop: `AT_ONCE` run, and one starts at a time, because starting a process blocks the
    loop for some milliseconds and a turn may start many."""

    __slots__ = ("running", "starting")

    def __init__(self) -> None:
        self.running = asyncio.Semaphore(AT_ONCE)
        self.starting = asyncio.Lock()

    @staticmethod
    def get_current() -> _Gate:
        loop = asyncio.get_running_loop()
        return _gates.get(loop) or _gates.setdefault(loop, _Gate())


_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, _Gate] = WeakKeyDictionary()


def _check_pattern(pattern: str) -> str:
    if not pattern or len(pattern) > _PATTERN_CHARS_MAX or "\0" in pattern:
        raise ToolError(f"a pattern has between 1 and {_PATTERN_CHARS_MAX} characters", reason="invalid_arguments")
    return pattern


def _kinds(name: str | None) -> tuple[str, ...]:
    if name is None:
        return ()
    if name not in TYPES:
        raise ToolError(f"there is no type {name!r}", hint=f"types: {', '.join(TYPES)}", reason="invalid_arguments")
    return TYPES[name]


def _join_rows(rows: list[str], *, more: bool, none: str, next_offset: int = 0) -> str:
    if not rows:
        return none
    kept: list[str] = []
    spent = 0
    for row in rows:
        spent += len(row) + 1
        if spent > _CHARS_MAX and kept:
            more, next_offset = True, next_offset - (len(rows) - len(kept)) if next_offset else 0
            break
        kept.append(row)
    if more:
        kept.append(
            f"… there is more; go on with offset={next_offset}"
            if next_offset
            else "… there is more; look in a smaller folder"
        )
    return "\n".join(kept)
