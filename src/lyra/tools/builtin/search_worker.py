"""The search itself, in a process of its own: `python -I -S search_worker.py` with a job as JSON on its input.

A pattern that takes for ever, or a tree of a million files, then costs the kernel's loop nothing, and is ended by
ending the process. Imports nothing but the standard library, so that it starts at once. Grep asks ripgrep where there
is one and does the work itself where there is not, or where the pattern is one that ripgrep cannot read (looking
ahead and behind, back references); the answer is the same. Ignore files are not read: folders of tools and
dependencies are passed over by name.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

Job = dict[str, Any]
Row = tuple[str, int, str, bool]  # path, line, text, whether it matched

ROWS_MAX = 5_000  # that go back
ROWS_KEPT = 200_000  # held before they are sorted
TEXT_CHARS_MAX = 2_000
FILE_BYTES_MAX = 10 * 1024 * 1024  # larger files are not searched
PASSED_OVER = (
    *(".git", ".hg", ".svn", ".lyra", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache"),
    *(".pytest_cache", ".tox", ".hypothesis", ".import_linter_cache"),
)
_PASSED_OVER = frozenset(PASSED_OVER)
_OWN_ONLY = re.compile(r"\(\?(?:[=!(>#]|<[=!]|P=)|\\[1-9ZAGBK]|[*+?}]\+")
_NOT_BY_LINES = re.compile(r"\\[AZ]|\(\?[a-z]*[<(=!]|\\s|\[\^|\\[WD]")


def glob_regex(pattern: str) -> str:
    """A glob as a regular expression over a path: `**` any folders, `*` and `?` within a name, `[…]`, `{a,b}`."""
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    pattern = pattern.lstrip("/")
    out, at, braces = [], 0, 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at):
            out.append("(?:[^/]+/)*")
            at += 3
            continue
        if pattern.startswith("**", at):
            out.append(".*")
            at += 2
            continue
        if char == "[" and "]" in pattern[at + 2 :]:
            end = pattern.index("]", at + 2)
            body = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[^{body[1:]}]" if body[0] in "!^" else f"[{body}]")
            at = end + 1
            continue
        if char == "{" and "}" in pattern[at:]:
            out.append("(?:")
            braces += 1
        elif char == "}" and braces:
            out.append(")")
            braces -= 1
        elif char == "," and braces:
            out.append("|")
        elif char == "\\" and at + 1 < len(pattern):
            at += 1
            out.append(re.escape(pattern[at]))
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char))
        at += 1
    return "".join(out)


def walk(root: str) -> list[str]:
    """The plain files below a folder, relative to it; links are not followed."""
    found: list[str] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _PASSED_OVER:
                            folders.append(f"{folder}{entry.name}/")
                    elif entry.is_file(follow_symlinks=False):
                        found.append(folder + entry.name)
        except OSError:
            continue  # gone, or not ours to read
    return found


def chosen(job: Job, files: list[str]) -> list[str]:
    wanted = [re.compile(glob_regex(glob), re.DOTALL) for glob in job.get("globs", ())]
    kinds = [re.compile(glob_regex(glob), re.DOTALL) for glob in job.get("kinds", ())]
    return [
        name
        for name in files
        if (not wanted or any(glob.fullmatch(name) for glob in wanted))
        and (not kinds or any(kind.fullmatch(name) for kind in kinds))
    ]


def run_glob(job: Job) -> dict[str, Any]:
    root = job["root"]
    rows = []
    for name in chosen(job, walk(root)):
        try:
            rows.append((-os.lstat(os.path.join(root, name)).st_mtime_ns, name))
        except OSError:
            continue
    rows.sort()
    return {"engine": "own", "rows": [name for _, name in rows[:ROWS_MAX]], "more": len(rows) > ROWS_MAX}


# ---------------------------------------------------------------- grep
def run_grep(job: Job) -> dict[str, Any]:
    try:
        own = re.compile(job["pattern"], _flags(job))
        wrong = None
    except (re.error, RecursionError, OverflowError) as error:
        own, wrong = None, str(error)
    rg = shutil.which("rg") if job.get("ripgrep", True) and not _OWN_ONLY.search(job["pattern"]) else None
    found = by_ripgrep(rg, job) if rg else None
    engine = "own" if found is None else "ripgrep"
    if found is None:
        if own is None:
            return {"error": f"the pattern cannot be read: {wrong}"}
        found = by_hand(own, job)
    rows = summed(found, job["mode"])
    return {"engine": engine, "rows": rows[:ROWS_MAX], "more": len(rows) > ROWS_MAX}


def _flags(job: Job) -> int:
    flags = re.MULTILINE | (re.DOTALL if job["multiline"] else 0)
    return flags | (re.IGNORECASE if job["ignore_case"] else 0)


def summed(found: list[Row], mode: str) -> list[Any]:
    """Rows of (path, line, text, whether it matched), in order, as the mode shows them."""
    found.sort(key=lambda row: (row[0], row[1]))
    if mode == "content":
        return [[path, line, cut(text), hit] for path, line, text, hit in found]
    counts: dict[str, int] = {}
    for path, _, _, hit in found:
        counts[path] = counts.get(path, 0) + hit
    return list(counts) if mode == "files_with_matches" else [[path, count] for path, count in counts.items()]


def cut(text: str) -> str:
    text = text.rstrip("\r")
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}… ({len(text)} characters)"


def by_ripgrep(program: str, job: Job) -> list[Row] | None:
    """None where ripgrep cannot read the pattern."""
    command = [program, "--json", "--no-config", "--no-ignore", "--hidden", "--no-messages", "--max-filesize", "10M"]
    command += ["--ignore-case"] if job["ignore_case"] else ["--case-sensitive"]
    command += ["--multiline", "--multiline-dotall"] if job["multiline"] else []
    command += ["-B", str(job["before"]), "-A", str(job["after"])]
    for glob in (*job.get("kinds", ()), *job.get("globs", ())) if not (job.get("kinds") and job.get("globs")) else ():
        command += ["--glob", glob]
    for name in PASSED_OVER:
        command += ["--glob", f"!**/{name}/"]
    command += ["-e", job["pattern"], "--", job.get("file") or "."]
    process = subprocess.Popen(command, cwd=job["root"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    found: list[Row] = []
    begun = 0
    for line in process.stdout:
        message = json.loads(line)
        data = message["data"]
        if message["type"] == "begin":
            begun = len(found)
        elif message["type"] == "end":
            if data.get("binary_offset") is not None:
                del found[begun:]
        elif message["type"] in ("match", "context") and len(found) < ROWS_KEPT:
            path = plain(data["path"]).removeprefix("./")
            for offset, text in enumerate(lines_of(plain(data["lines"]))):
                found.append((path, data["line_number"] + offset, text, message["type"] == "match"))
    if process.wait() == 2 and not found:
        return None
    names = set(chosen(job, list({row[0] for row in found}))) if not job.get("file") else None
    return [row for row in found if names is None or row[0] in names]


def plain(part: dict[str, str]) -> str:
    return part["text"] if "text" in part else base64.b64decode(part["bytes"]).decode("utf-8", "replace")


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def by_hand(pattern: re.Pattern[str], job: Job) -> list[Row]:
    found: list[Row] = []
    files = [job["file"]] if job.get("file") else chosen(job, walk(job["root"]))
    quick = not job["multiline"] and not _NOT_BY_LINES.search(job["pattern"])
    for name in files:
        text = read_text(os.path.join(job["root"], name))
        if text is None or (quick and pattern.search(text) is None):
            continue
        lines = lines_of(text)
        hits = spanned(pattern, text) if job["multiline"] else [i for i, s in enumerate(lines) if pattern.search(s)]
        marked = set(hits)
        shown = {n for hit in hits for n in range(hit - job["before"], hit + job["after"] + 1) if 0 <= n < len(lines)}
        found += [(name, n + 1, lines[n], n in marked) for n in sorted(shown)]
        if len(found) > ROWS_KEPT:
            break
    return found


def spanned(pattern: re.Pattern[str], text: str) -> list[int]:
    """The lines that matches cover."""
    lines: dict[int, None] = {}
    line, last = 0, 0
    for match in pattern.finditer(text):
        start, end = match.start(), max(match.start(), match.end() - 1)
        if start >= len(text):
            break
        line += text.count("\n", last, start)
        last = start
        for number in range(line, line + text.count("\n", start, end) + 1):
            lines[number] = None
    return list(lines)


def read_text(path: str) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(fd, "rb") as file:
            if os.fstat(fd).st_size > FILE_BYTES_MAX:
                return None
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return None
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    return None if b"\0" in data else data.decode("utf-8", "replace")


def main() -> None:
    job = json.load(sys.stdin)
    try:
        answer = run_glob(job) if job["kind"] == "glob" else run_grep(job)
    except (re.error, RecursionError, OverflowError) as error:
        answer = {"error": f"the pattern cannot be read: {error}"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
