"""What goes with a prompt: images that it names by path, and texts that were pasted.

A path to an image counts where it stands as its own word: typed, dragged into the terminal, in quotes, with
escaped blanks, as a `file://` address or behind an `@`. Only files that exist and begin like an image are read. A paste
of many lines is a short mark in the prompt and its text in the message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from lyra.errors import ConfigError
from lyra.sage.terminal.text.styled_lines import exact

_IMAGE: Final = re.compile(
    r"""@?"(?P<double>[^"\n]+\.(?:png|jpe?g|gif|webp))"|@?'(?P<single>[^'\n]+\.(?:png|jpe?g|gif|webp))'"""
    r"""|(?<!\S)@?(?P<bare>(?:\\.|[^\s\\"'])+\.(?:png|jpe?g|gif|webp))(?=[\s,;:.!?)]|$)""",
    re.IGNORECASE,
)
_ESCAPED: Final = re.compile(r"\\(.)")
_IMAGES_MAX: Final = 20
_PASTE_LINES_LEAST: Final = 4  # a shorter paste is put into the prompt as it is
_PASTE_CHARS_LEAST: Final = 1_000
_MARK: Final = re.compile(r"\[paste (\d+): [^\]\n]*\]")


class Prompt(NamedTuple):
    """A message for the model: its content, and what is told to the user about its images."""

    content: Any
    notes: list[str]


class Pastes:
    """Pasted texts that stand in the prompt as a mark."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def fold(self, text: str) -> str:
        """Return what to put into the prompt for a paste: the text, or a mark for one of many lines."""
        lines = text.count("\n") + 1
        if lines < _PASTE_LINES_LEAST and len(text) < _PASTE_CHARS_LEAST:
            return text
        number = len(self._texts) + 1
        self._texts[number] = text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        return f"[paste {number}: {size}]"

    def unfold(self, text: str) -> str:
        """Return the prompt with the pasted texts in place of their marks."""
        return _MARK.sub(lambda mark: self._texts.get(int(mark[1]), mark[0]), text)


def prompt_of(text: str, folder: str, *, folded: str | None = None) -> Prompt:
    """Return the message of a prompt, with the images that it names; `folded` is the text in which paths are searched,
    where that is another than the text that is sent."""
    parts: list[Any] = [text]
    notes: list[str] = []
    for path in _image_paths(text if folded is None else folded, folder):
        from lyra.agents.declaration.output import Image

        name = exact(os.path.basename(path))
        try:
            parts.append(Image.from_path(path))
        except ConfigError as error:
            notes.append(f"{name} is not sent: {error.message}")
        else:
            notes.append(f"image {name}, {_size(os.path.getsize(path))}")
    return Prompt(parts if len(parts) > 1 else text, notes)


def _image_paths(text: str, folder: str) -> Sequence[str]:
    paths: dict[str, None] = {}
    for match in _IMAGE.finditer(text):
        bare = match["bare"]
        path = _ESCAPED.sub(r"\1", bare) if bare is not None else match["double"] or match["single"]
        path = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
        whole = os.path.join(folder, os.path.expanduser(path))
        if os.path.isfile(whole):
            paths[whole] = None
    return list(paths)[:_IMAGES_MAX]


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1024:.0f} kB" if size_bytes < 1 << 20 else f"{size_bytes / (1 << 20):.1f} MB"
