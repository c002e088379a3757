"""Code of other languages in a command's words: whether it seems to start programs.

`python -c`, `perl -e` and `node -e` can do all that a shell can. `starts_programs(text, language)` is a heuristic: it
is True for the words by which programs are started, and for constructs that would hide them (code made of strings,
attributes by name, escapes in names). Python is parsed, and harmless only where every module and name in it is known to
be. For a language without a row it is always True.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ast


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CHARACTERS_MAX: Final = 4_000
_ANY: Final = (
    r"system|popen|exec|spawn|subprocess|child_process|shell|\bfork\b|qx|`|!(?!=)|__import__|getattr"
    r"|(?<!literal_)eval|\\[xu0-7]"
)
_OF: Final[dict[str, str]] = {
    "python": r"ctypes|importlib|putenv|environ(?!\.get\b|\s*\[)",  # PATH in it decides which program runs
    # A file's name in @ARGV may be a command; a reference may be to it; a module may open such a file.
    "perl": r"open|\bdo\b|\brequire\b|syscall|\bpipe\b|CORE|POSIX|IPC|\bcan\b|/[a-z]*ee"
    r"|ARGV|[@%&*]\s*[${]|\$\s*[${]|(?<!List)(?<!Data)(?<!JSON)::|::\s*\{"
    r"|\b(?:use|no)\s+(?!(?:strict|warnings|utf8|feature|integer|bigint|List::Util|Data::Dumper|JSON::PP)\b|v?5)",
    "ruby": r"open|%x|send|\bmethod|Process|\bIO\b|Kernel|\bload\b|require|const_get|instance_|define_",
    # `this` and the names that `node -e` predefines are other ways to `require`.
    "javascript": r"\bthis\b|\barguments\b|__proto__|prototype|\bvm\b|\brepl\b|\binspector\b|\bcluster\b|\bwasi\b"
    r"|\bObject\b(?!\s*\.\s*(?:keys|values|entries|fromEntries|assign|freeze)\b)|\._"
    r"|require|import|Function|constructor|Reflect|\bDeno\b|\bBun\b|global|\bmodule\b|Worker"
    r"|process(?!\.(?:argv|env|stdin|stdout|versions?|platform|arch|exit|cwd)\b)"
    r"|\[(?!\s*(?:[0-9]+|\"[^\"\\]*\"|'[^'\\]*')?\s*\])",
    "php": r"assert|include|require|\$\w+\s*\(|call_user|array_|preg|create_function|passthru|proc_|mail|\bdl\b"
    r"|FFI|\{\$",
    "lua": r"load|require|package|\bos\b|\bio\b|debug|_G\b|_ENV",
    "sql": r"\\(?![dlx])|\bprogram\b|extension|\bedit\b|writefile",
    "sqlite": r"\b(?:edit|load_extension|readfile|writefile|fts3_tokenizer)\b"
    r"|^\s*\.(?!\.?/|(?:tables?|schema|fullschema|mode|headers?|databases|index(?:es)?|indices|dump|width|nullvalue"
    r"|separator|show|stats|timer|explain|eqp|echo|bail|changes|parameter|help|quit|exit|print|version|limits?|lint"
    r"|timeout|sha3sum|dbinfo|dbconfig)\b[^|\n]*$|\s*$)",
}
_ALONE: Final = words_of("sqlite")  # without _ANY: a table may be called `executions`
LANGUAGES: Final = _OF.keys()

# ---------------------------------------------------------------- Python
_MODULES: Final = words_of(
    "json sys re math cmath datetime time random string collections itertools functools textwrap statistics decimal"
    " fractions hashlib base64 csv urllib urllib.parse uuid struct binascii pprint bisect heapq calendar difflib html"
    " unicodedata zlib pathlib tomllib ast os os.path glob fnmatch locale configparser io shlex secrets copy platform"
)
_NAMES: Final = words_of(
    "eval exec compile getattr setattr delattr globals locals vars breakpoint help modules Formatter attrgetter"
)
_ACTS: Final = re.compile(r"\b(?:antigravity|idlelib|turtledemo|__main__)\b")  # importing these has effects
_ABOUT: Final = words_of("__version__ __file__ __name__ __doc__ __path__")  # attributes that describe a module


@cache
def _suspicious(language: str) -> re.Pattern[str]:
    row = _OF[language] if language in _ALONE else f"{_ANY}|{_OF[language]}"
    return re.compile(row, re.IGNORECASE | re.MULTILINE)


def starts_programs(text: str, language: str) -> bool:
    """Whether this code seems to start programs, or could hide that it does."""
    import unicodedata  # slow to import, and rarely needed

    if language not in LANGUAGES or len(text) > _CHARACTERS_MAX:
        return True
    if _suspicious(language).search(unicodedata.normalize("NFKC", text)):
        return True
    return language == "python" and not _is_plain(text)


def _is_plain(text: str) -> bool:
    import ast

    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    strange = {name for node in nodes for name in _strange_modules(node)}
    if strange and not all(isinstance(node, _shows()) for node in nodes):
        return False  # importing an unknown module may act on what the code did before
    shown = {id(root) for node in nodes for root in _only_shown(node)}
    for node in nodes:
        if isinstance(node, ast.Name) and (node.id in _NAMES or (node.id in strange and id(node) not in shown)):
            return False
        if isinstance(node, ast.Attribute) and (
            node.attr in _NAMES or (node.attr[:1] == "_" and node.attr not in _ABOUT)
        ):
            return False
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_environ(node.value):
            return False
        if strange and isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "print"):
            return False
    return "" not in strange


@cache
def _shows() -> tuple[type[ast.AST], ...]:
    """The syntax nodes of code that imports a module and prints its description."""
    import ast

    whole = (ast.Module, ast.Import, ast.ImportFrom, ast.alias, ast.Expr, ast.Call, ast.keyword, ast.Load)
    return (*whole, ast.Attribute, ast.Name, ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.Tuple)


def _is_environ(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "environ"


def _strange_modules(node: ast.AST) -> Iterator[str]:
    """Names of imported unknown modules; "" where something is imported from one."""
    import ast

    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in _MODULES:
                acts = _ACTS.search(alias.name) is not None
                yield "" if acts else alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.ImportFrom):
        taken = any(alias.name in _NAMES or alias.name[:1] == "_" for alias in node.names)
        if node.level or node.module not in _MODULES or taken:
            yield ""


def _only_shown(node: ast.AST) -> Iterator[ast.AST]:
    """The name at the root of `torch.__version__` or `a.b.__file__`."""
    import ast

    if isinstance(node, ast.Attribute) and node.attr in _ABOUT:
        root = node.value
        while isinstance(root, ast.Attribute):
            root = root.value
        yield root
