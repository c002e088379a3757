"""Lines of a shell: a backslash at the end of one joins it with the next, before anything else is read."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["joined_lines"]

# What matters when lines are joined: quotes, escapes, comments, and where a heredoc begins.
_LEXEME: Final = re.compile(
    r"\\\n|\\.|\$?'[^'\\]*'|\$'(?:[^'\\]|\\.)*'|'[^']*'"
    r"|\$\([^'\"`#<>()\\$\n]*\)|\$\{[A-Za-z0-9_]+\}|\$[({[]|<<|\n|[^\\'\"#<\n$`]+|.",
    re.DOTALL,
)
_BEFORE_COMMENT: Final = frozenset(" \t\n;&|<>()`")


def joined_lines(text: str, at: int) -> tuple[str, bool]:
    """The text with its continued lines joined from a place on, and whether that could be wrong.

    Within single quotes, comments and heredocs nothing is joined. What is in a substitution within quotes is not
    followed: a line that is continued after one is in doubt.
    """
    out, quoted, doubt = [text[:at]], False, False
    waits = False  # a heredoc begins after this line
    while at < len(text) and not doubt:
        found = _LEXEME.match(text, at)
        assert found is not None
        piece = found[0]
        if piece == "\\\n":
            doubt = text[at - 1 : at] == "$" and text.startswith(("'", '"'), found.end())
            piece = ""
        elif quoted:
            if piece[0] == "'" or piece[0] == "#" or piece[:2] in ("$'", "<<"):
                piece = piece[0]  # nothing special here; go on behind it
            quoted = piece != '"'
            follows = piece == "$" and text.startswith("\\\n", at + 1)
            doubt = (follows or piece in ("`", "$(", "${", "$[")) and text.find("\\\n", at) >= 0
        elif piece == '"':
            quoted = True
        elif piece[0] == "#":
            if at == 0 or text[at - 1] in _BEFORE_COMMENT:
                end = text.find("\n", at)
                end = len(text) if end < 0 else end
                doubt = text[end - 1] == "\\" or any(each in text for each in ("((", "[[", "$["))
                piece = text[at:end]
        elif piece == "<<":
            waits = not text.startswith("<", at + 2)
            piece = piece if waits else "<<<"
        elif piece == "\n" and waits:
            break
        out.append(piece)
        at = found.end() if piece in ("", found[0]) else at + len(piece)
    out.append(text[at:])
    return "".join(out), doubt
