"""HookMatcher: whether a hook is for this tool, source, reason, type or prompt.

Nothing and `*` match all. `Edit|Write` matches these names and no other. With any of `\\ ^ $ . * + ? ( ) [ ] { }` it is
a regular expression for the whole text, matched in linear time; of a long text the beginning is looked at.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.config.hook_settings import compile_pattern

_CHARS_MAX: Final = 2_000  # of the text that is matched


class HookMatcher:
    __slots__ = ("_names", "_pattern", "text")

    def __init__(self, text: str, name: str = "a hook") -> None:
        self.text = text
        self._pattern = compile_pattern(text, name)
        self._names = frozenset(part.strip() for part in text.split("|")) if text not in ("", "*") else None

    def matches(self, value: Any) -> bool:
        if self._names is None:
            return True
        if not isinstance(value, str):
            return False
        if self._pattern is not None:
            return self._pattern.matches_whole(value[:_CHARS_MAX])
        return value in self._names
