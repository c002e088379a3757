"""The diff of an edit before it is made: from the arguments of the call and the file as it is now.

A question about an edit shows it, and so does an edit that is allowed without a question. Reads only small files inside
the folder of the session, and changes none.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Mapping
from typing import Any, Final

from lyra.errors import LyraError

_FILE_BYTES_MAX: Final = 1 << 20
_PATHS: Final = {"Edit": "file_path", "MultiEdit": "file_path", "Write": "file_path", "NotebookEdit": "notebook_path"}


def edit_preview(tool: str, arguments: Mapping[str, Any], folder: str) -> str:
    """Return the diff that a call will make, of a notebook cell by cell; empty where it is not known."""
    texts = preview_edit(tool, arguments, folder)
    if texts is None:
        return ""
    path = str(arguments[_PATHS[tool]])
    if tool == "NotebookEdit":
        from lyra.tools.builtin.files import show_notebook

        texts = (show_notebook(texts[0], path), show_notebook(texts[1], path))
    before, after = (text.splitlines() for text in texts)
    return "\n".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm=""))


def preview_edit(tool: str, arguments: Mapping[str, Any], folder: str) -> tuple[str, str] | None:
    """Return the file before and after a call; None where it is not known."""
    path = arguments.get(_PATHS.get(tool, ""))
    if not isinstance(path, str) or not path:
        return None
    before = _text_of(path, folder)
    after = None if before is None else _after(tool, arguments, before)
    return None if before is None or after is None else (before, after)


def _after(tool: str, arguments: Mapping[str, Any], before: str) -> str | None:
    if tool == "Write":
        content = arguments.get("content")
        return content if isinstance(content, str) else None
    if tool == "NotebookEdit":
        from lyra.tools.builtin.files import change_notebook

        try:
            return change_notebook(before, **arguments)[0]
        except (LyraError, TypeError, ValueError, AttributeError):
            return None  # the call will fail
    edits = arguments.get("edits") if tool == "MultiEdit" else [arguments]
    text = before
    for edit in edits if isinstance(edits, list) else []:
        old, new = (edit.get("old_string"), edit.get("new_string")) if isinstance(edit, Mapping) else (None, None)
        if not isinstance(old, str) or not isinstance(new, str) or not old or old not in text:
            return None
        text = text.replace(old, new) if edit.get("replace_all") else text.replace(old, new, 1)
    return text


def _text_of(path: str, folder: str) -> str | None:
    """Return the text of a file in the folder; empty for one that does not exist, None for one that is not shown."""
    root = os.path.realpath(folder)
    try:
        whole = os.path.realpath(os.path.join(root, os.path.expanduser(path)))
        if not whole.startswith(f"{root}/"):
            return None
        facts = os.stat(whole)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _FILE_BYTES_MAX:
            return None
        with open(whole, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None
