"""A symbol of a source file, and the text that shows it.

A signature is one line of the source: what it says up to the body, without comments, and with every string in it
masked, since a default value can hold whole sentences. Next: `outline`, which finds the symbols of a file.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SIGNATURE_CHARS_MAX: Final = 160
SYMBOLS_MAX: Final = 2_000  # of one file; more are generated code
_NAME_CHARS_MAX: Final = 60
_IDENTIFIERS_MAX: Final = 5_000  # different ones of one file
_STRING: Final = re.compile(r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)""")
_COMMENTS: Final = {"#": re.compile(r"#[^\n]*"), "//": re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)}
_BLANKS: Final = re.compile(r"\s+")
# Comments and strings, in which names are words; what begins in one and never ends is left as it is.
_PROSE: Final = re.compile(
    r"""\"{3}.*?\"{3}|'{3}.*?'{3}|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?:#|//)[^\n]*""", re.DOTALL
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{2,59}(?![A-Za-z0-9_$])")


class MapSymbol(NamedTuple):
    """A definition: `depth` is 0 for one of the file itself, 1 for a member of a class. Lines count from 1."""

    name: str
    signature: str
    line: int
    depth: int = 0


def one_line(source: str, *, comment: str = "#") -> str:
    """The source of a signature on one line, strings masked and comments left out, which `#` or `//` begins."""
    text = _STRING.sub("...", source)
    text = _BLANKS.sub(" ", _COMMENTS[comment].sub(" ", text)).strip()
    text = text.replace("( ", "(").replace(", )", ")").replace(" )", ")")
    return text if len(text) <= SIGNATURE_CHARS_MAX else f"{text[:SIGNATURE_CHARS_MAX]}..."


def identifiers(text: str) -> set[str]:
    """The different names of three characters and more that a source mentions outside of comments and strings."""
    names = set(_IDENTIFIER.findall(_PROSE.sub(" ", text)))
    return names if len(names) <= _IDENTIFIERS_MAX else set()  # a word list or generated code says nothing
