"""The symbols of a file by simple patterns, line by line: for languages without an installed grammar.

One line is one definition, and blanks at its beginning make it a member. What spans lines, or is written in an unusual
way, is missed; nothing else depends on it. Every pattern looks at one line of bounded length, and is linear in it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from lyra.sage.project.repo_map.symbol import SYMBOLS_MAX, MapSymbol, one_line

_LINE_CHARS_MAX: Final = 400
_WORDS_BEFORE: Final = (
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([\w: ]{1,40}\))?|"
    r"open|override|sealed|data|inline|extern|unsafe|const|partial|virtual|readonly|declare|suspend|local|implicit|"
    r"lazy|case) )*"
)


def _keywords(words: str) -> str:
    return rf"[ \t]*{_WORDS_BEFORE}(?:{words})\*? (?:\([^()]{{0,80}}\) )?([A-Za-z_$][\w$.:?!]*)"


_MODIFIERS: Final = "public|private|protected|internal|static|final|abstract|synchronized|override|virtual|async"
_TYPES: Final = "class|interface|trait|enum|struct|union|record|object|protocol|extension|module|namespace|type|mod"
_C_FUNCTION: Final = (
    r"(?![ \t]*(?:return|else|typedef|using|if|for|while|switch|case)\b)"
    r"[A-Za-z_][\w:<>,*&~ ]{0,120}?[ *&]([A-Za-z_~][\w:~]*)\([^;{}]{0,200}\)?[^;{]{0,40}(?:\{.*)?$"
)
_JAVA_METHOD: Final = rf"[ \t]+(?:(?:{_MODIFIERS}) ){{1,6}}[\w<>,.\[\]? ]{{1,80}}? ?([A-Za-z_]\w*)\("
_ARROW: Final = (
    r"(?:export )?(?:const|let|var) ([A-Za-z_$][\w$]*) = (?:async )?(?:function\b|\([^()]{0,200}\) =>|\w+ =>)"
)
_SQL: Final = r"(?i)create (?:or replace )?(?:table|view|function|procedure|index|type) (?:if not exists )?([\w.\"]+)"

# Regular expressions for the beginning of a line; the first group is the name.
PATTERN_LANGUAGES: Final[dict[str, tuple[str, ...]]] = {
    "python": (_keywords("def|class"),),  # of a file that Python cannot read, such as one that is half edited
    "javascript": (_keywords(f"function|{_TYPES}"), _ARROW),
    "go": (_keywords("func|type"),),
    "rust": (_keywords(f"fn|macro_rules!|{_TYPES}"),),
    "java": (_keywords(_TYPES), _JAVA_METHOD),
    "c": (r"(?:typedef )?(?:struct|union|enum|class|namespace) ([A-Za-z_]\w*)[^;={]*(?:\{.*)?$", _C_FUNCTION),
    "ruby": (_keywords("def|class|module"),),
    "php": (_keywords(f"function|{_TYPES}"),),
    "kotlin": (_keywords(f"fun|{_TYPES}"),),
    "swift": (_keywords(f"func|{_TYPES}"),),
    "scala": (_keywords(f"def|{_TYPES}"),),
    "lua": (_keywords("function"),),
    "shell": (r"(?:function )?([A-Za-z_][\w-]*) ?\(\)",),
    "elixir": (_keywords("defmodule|defp|def|defmacro"),),
    "sql": (_SQL,),
    "protobuf": (_keywords("message|service|enum|rpc"),),
    "vega": (_keywords("fn|agent|tool|type|enum|record|program|supervisor"),),
}
_HASHED: Final = ("python", "ruby", "shell", "elixir", "vega")  # languages whose comments begin with #
_ALSO: Final = {"typescript": "javascript", "tsx": "javascript", "cpp": "c", "c_sharp": "java"}


@lru_cache(maxsize=len(PATTERN_LANGUAGES))
def _compiled(name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in PATTERN_LANGUAGES.get(_ALSO.get(name, name), ()))


def pattern_symbols(name: str, text: str) -> list[MapSymbol]:
    """The symbols in the order of the source; none for a language without patterns."""
    patterns = _compiled(name)
    symbols: list[MapSymbol] = []
    if not patterns:
        return symbols
    is_hashed = name in _HASHED
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or len(line) > _LINE_CHARS_MAX or len(symbols) >= SYMBOLS_MAX:
            continue
        match = next((match for pattern in patterns if (match := pattern.match(line)) is not None), None)
        if match is not None:
            head = line if is_hashed else line.partition("{")[0]
            signature = one_line(head.strip().rstrip(":;=").rstrip(), comment="#" if is_hashed else "//")
            name_only = match[1].rstrip(":.").rpartition("::")[2]
            symbols.append(MapSymbol(name_only, signature, number, int(line[0] in " \t")))
    return symbols
