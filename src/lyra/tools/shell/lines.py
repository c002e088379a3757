"""Lines of a shell: a backslash at the end of one joins it with the next, before anything else is read.

It stands alone below the readers of words and commands, which build on it.
"""

from __future__ import annotations

import re
from typing import Final

# What matters when lines are joined: quotes, escapes, comments, and where a heredoc begins.
_LEXEME: Final = re.compile(
    r"\\\n|\\.|\$?'[^'\\]*'|\$'(?:[^'\\]|\\.)*'|'[^']*'"
    r"|\$\([^'\"`#<>()\\$\n]*\)|\$\{[A-Za-z0-9_]+\}|\$[({[]|<<|\n|[^\\'\"#<\n$`]+|.",
    re.DOTALL,
)
_LEXEMES_MAX: Final = 16_384  # a text with more is in doubt
_BEFORE_COMMENT: Final = frozenset(" \t\n;&|<>()`")


def join_lines(text: str, position: int) -> tuple[str, bool]:
    """Return the text with its continued lines joined from `position` on, and whether the result is in doubt.

    Within single quotes, comments and heredocs nothing is joined. A substitution within quotes is not
    parsed here, so a continued line after one is in doubt.
    """
    out, quoted, doubt = [text[:position]], False, False
    waits = False  # a heredoc's body begins after this line
    while position < len(text) and not doubt:
        if len(out) > _LEXEMES_MAX:
            return text, True
        lexeme = _LEXEME.match(text, position)
        assert lexeme is not None
        piece = lexeme[0]
        if piece == "\\\n":
            doubt = text[position - 1 : position] == "$" and text.startswith(("'", '"'), lexeme.end())
            piece = ""
        elif quoted:
            if piece[0] == "'" or piece[0] == "#" or piece[:2] in ("$'", "<<"):
                piece = piece[0]  # not special within double quotes
            quoted = piece != '"'
            follows = piece == "$" and text.startswith("\\\n", position + 1)
            doubt = (follows or piece in ("`", "$(", "${", "$[")) and text.find("\\\n", position) >= 0
        elif piece == '"':
            quoted = True
        elif piece[0] == "#":
            if position == 0 or text[position - 1] in _BEFORE_COMMENT:
                end = text.find("\n", position)
                end = len(text) if end < 0 else end
                doubt = text[end - 1] == "\\" or any(opener in text for opener in ("((", "[[", "$["))
                piece = text[position:end]
        elif piece == "<<":
            waits = not text.startswith("<", position + 2)
            piece = piece if waits else "<<<"
        elif piece == "\n" and waits:
            break
        out.append(piece)
        position = lexeme.end() if piece in ("", lexeme[0]) else position + len(piece)
    out.append(text[position:])
    return "".join(out), doubt
