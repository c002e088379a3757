"""The rules of `.gitignore` files, for a machine without ripgrep.

The last rule that matches a path decides; a rule with `!` takes a path back. Rules of inner folders come after those of
outer ones. Paths are those below the root of the repository. Only reads text: `listing` opens the files.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from lyra.tools.builtin.search_worker import glob_regex

_RULES_MAX: Final = 2_000
_LINE_CHARS_MAX: Final = 300
_STARS_MAX: Final = 8  # each further one multiplies the time for a path that nearly matches


class _IgnoreRule(NamedTuple):
    matches: re.Pattern[str]
    base: str  # the folder of its file, and its slash
    folders_only: bool
    takes_back: bool


class IgnoreRules:
    """The rules that hold in one folder."""

    __slots__ = ("_rules",)

    def __init__(self, rules: tuple[_IgnoreRule, ...] = ()) -> None:
        self._rules = rules

    def added(self, text: str, base: str) -> Self:
        """These rules and those of the `.gitignore` in the folder `base` ("" is the root)."""
        rules = [rule for line in text.split("\n") if (rule := _rule(line, base)) is not None]
        return type(self)((*self._rules, *rules)[:_RULES_MAX])

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        for rule in reversed(self._rules):
            if rule.folders_only and not is_folder:
                continue
            if path.startswith(rule.base) and rule.matches.fullmatch(path, len(rule.base)):
                return not rule.takes_back
        return False


def _rule(line: str, base: str) -> _IgnoreRule | None:
    text = line.rstrip("\r").rstrip(" ") if not line.endswith("\\ ") else line
    if not text or text.startswith("#") or len(text) > _LINE_CHARS_MAX or text.count("*") > _STARS_MAX:
        return None
    takes_back = text.startswith("!")
    text = text.removeprefix("!") if takes_back else text
    folders_only = text.endswith("/")
    pattern = text.rstrip("/").replace("{", "\\{").replace("}", "\\}")
    if not pattern:
        return None
    try:
        regex = glob_regex(pattern)  # a leading slash keeps a plain name at the base
        return _IgnoreRule(re.compile(regex, re.DOTALL), base, folders_only, takes_back)
    except (re.error, IndexError):
        return None
