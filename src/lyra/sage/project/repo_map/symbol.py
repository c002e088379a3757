"""A symbol of a source file, and the text that shows it.

A signature is one line of the source: what it says up to the body, without comments, and with every string in it
masked, since a default value can hold whole sentences. Next: `outline`. Symbols of Python files are found by Python's
parser, those of languages without an installed grammar by patterns, line by line.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
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


# ---------------------------------------------------------------- pattern outline

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


# ---------------------------------------------------------------- python outline

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_symbols(text: str) -> list[MapSymbol]:
    """The symbols in the order of the source; SyntaxError and others for a file that Python cannot read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in other people's files
        tree = ast.parse(text)
    return list(_symbols(tree.body, text.split("\n"), 0))


def _symbols(body: Iterable[ast.stmt], lines: Sequence[str], depth: int) -> Iterator[MapSymbol]:
    for node in body:
        if isinstance(node, _Definition):
            yield MapSymbol(node.name, one_line(_head(node, lines)), node.lineno, depth)
            if isinstance(node, ast.ClassDef) and depth == 0:
                yield from _symbols(node.body, lines, 1)
        elif isinstance(node, (ast.If, ast.Try)) and depth == 0:  # of another platform, or of typing
            yield from _symbols(_branches(node), lines, depth)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and depth == 0:
            yield from _constants(node)


def _branches(node: ast.If | ast.Try) -> list[ast.stmt]:
    return [*node.body, *node.orelse] if isinstance(node, ast.If) else [*node.body, *node.orelse, *node.finalbody]


def _constants(node: ast.Assign | ast.AnnAssign) -> Iterator[MapSymbol]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if isinstance(target, ast.Name) and target.id[:1].isupper():
            yield MapSymbol(target.id, target.id, node.lineno)


def _head(node: _Definition, lines: Sequence[str]) -> str:
    """The source from `def` or `class` to the colon before the body."""
    first = node.body[0]
    decorators = getattr(first, "decorator_list", ())
    end = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    start = node.lineno
    if end == start:  # `def f(): return 1`; the columns of the parser count bytes
        line = lines[start - 1].encode()
        return line[node.col_offset : first.col_offset].decode("utf-8", "replace").rstrip().removesuffix(":")
    whole = "\n".join(lines[start - 1 : end - 1])
    return whole[: whole.rindex(":")] if ":" in whole else whole
