"""Options that make a program run others, read other settings or write anywhere, and how to find them in a call.

An abbreviated long option counts as the most dangerous one that it can represent, and so does a letter in a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import ast


_BEGINS: Final = frozenset("-+")
_SETTING: Final = re.compile(r"^(?:exec|[A-Za-z][A-Za-z0-9_-]*[.:][A-Za-z0-9_.:-]*)=!?")


class OptionReach(NamedTuple):
    """What a part of a call does beyond the program itself. `through`: a rule has to name this many words; `run`: a
    shell text that is run; `code`: code of another form is run; `begins`: a command begins at this word or later."""

    through: int
    run: str | None = None
    code: bool = False
    begins: int = 0


class ProgramOptions(NamedTuple):
    """The options of one program. Short options are letters, long ones words; `dashes` are words with one dash."""

    runs: str = ""  # the value is run
    wide: str = ""  # reads other settings, or writes anywhere
    valued: str = ""  # takes a value, which ends a cluster of letters
    long_runs: frozenset[str] = frozenset()
    long_wide: frozenset[str] = frozenset()
    dashes_run: frozenset[str] = frozenset()
    dashes_wide: frozenset[str] = frozenset()
    code: str = ""  # the value is code in `language`
    long_code: frozenset[str] = frozenset()
    language: str = ""
    unread: str = ""  # the value is run, in a form that is not parsed here
    long_unread: frozenset[str] = frozenset()
    dashes_unread: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()  # harmless long options, which are no abbreviation
    bundle: bool = False  # its first word may be letters without a dash
    commas: bool = False  # commas separate the words of the command that is run
    plus: bool = False  # a word with `+` is code
    leading: bool = False  # words after the first plain word are no options of the program

    @property
    def runs_something(self) -> bool:
        short = self.runs or self.code or self.unread
        return bool(short or self.long_runs or self.dashes_run or self.long_code or self.long_unread)


def long_of(text: str) -> frozenset[str]:
    """Long options with all their abbreviations."""
    return frozenset([word[:end] for word in text.split() for end in range(1, len(word) + 1)])


def count_own_words(words: Sequence[str], options: ProgramOptions) -> int:
    """Return how many words come before the first that is neither an option nor an option's value."""
    index = 1
    while index < len(words):
        word = words[index]
        if (word[:1] not in _BEGINS and word[:1] != "\0") or word in ("-", "--"):
            return index
        index += 2 if _takes_next(word, options) else 1
    return len(words)


def _takes_next(word: str, options: ProgramOptions) -> bool:
    """Return whether the next word may be this option's value; True for an unknown long option without `=`."""
    if word[:2] == "--":
        return "=" not in word
    ends = options.valued + options.runs + options.code + options.unread + options.wide
    place_of_letter = next((place for place, letter in enumerate(word[1:], 2) if letter in ends), 0)
    return place_of_letter == len(word)


def find_reached(words: Sequence[str], options: ProgramOptions, index: int) -> Iterator[OptionReach]:
    bundle = options.bundle and len(words) > 1 and words[1][:1] != "-"  # tar's old way: letters without a dash
    last = count_own_words(words, options) if options.leading else len(words)
    while index < last:
        word = words[index]
        if word[:1] not in _BEGINS and not (bundle and index == 1):
            index += 1
            continue
        following = words[index + 1] if index + 1 < len(words) else ""
        if word == "--":
            return
        if word[:2] == "--":
            yield from _long(word, following, options, index)
        elif word[:1] == "-" and len(word) > 1:
            reach = _dashes(word, following, options, index)
            if reach is not None:
                yield reach
            else:
                yield from _short(word[1:], following, options, index)
                if options.leading and word[-1] == "m":
                    return  # python -m: the other words belong to the module
        elif bundle and index == 1:
            yield from _read_bundle(words, options)
        elif options.plus and word[:1] == "+" and len(word) > 1:
            yield OptionReach(index + 1, code=True)
        index += 1


def _dashes(word: str, following: str, options: ProgramOptions, index: int) -> OptionReach | None:
    """Return a long option with one dash."""
    name, equals, value = word.partition("=")
    through, value = (index + 1, value) if equals else (index + 2, following)
    if name in options.dashes_run:
        return OptionReach(through, value.replace(",", " ") if options.commas else value)
    if name in options.dashes_unread:
        return OptionReach(through, code=True)
    return OptionReach(index + 1) if name in options.dashes_wide else None


def _read_bundle(words: Sequence[str], options: ProgramOptions) -> Iterator[OptionReach]:
    """tar's old way: the values of the letters are the words that follow, in their order."""
    index = 1
    for letter in words[1]:
        if letter in options.runs or letter in options.valued:
            index += 1
        if letter in options.runs:
            yield OptionReach(index + 1, words[index] if index < len(words) else None, code=index >= len(words))
        elif letter in options.wide:
            yield OptionReach(index + 1)


def _long(word: str, following: str, options: ProgramOptions, index: int) -> Iterator[OptionReach]:
    name, equals, value = word[2:].partition("=")
    if name in options.known or not name:
        return
    through, value = (index + 1, value) if equals else (index + 2, following)
    if name in options.long_runs:
        yield OptionReach(through, _command_in(value))
    elif name in options.long_code:
        yield OptionReach(through, code=starts_programs(value, options.language))
    elif name in options.long_unread:
        yield OptionReach(through, code=True)
    elif name in options.long_wide:
        yield OptionReach(through)


def _command_in(value: str) -> str:
    """Return the command in `exec=rm x`, `core.sshCommand=rm x` or just `rm x`."""
    return _SETTING.sub("", value, count=1)


def _short(letters: str, following: str, options: ProgramOptions, index: int) -> Iterator[OptionReach]:
    meant = options.runs + options.code + options.unread + options.wide + options.valued
    for place, letter in enumerate(letters):
        if letter not in meant:
            continue
        rest = letters[place + 1 :]
        through, value = (index + 1, rest) if rest else (index + 2, following)
        if letter in options.runs:
            yield OptionReach(
                through, re.split(r"[= ]", value, maxsplit=1)[-1] if letter == "o" else _command_in(value)
            )
            return
        if letter in options.code:
            if rest and all(other in options.code for other in rest):
                continue  # node -pe
            yield OptionReach(through, code=starts_programs(value, options.language))
            return
        if letter in options.unread:
            yield OptionReach(through, code=True)
            return
        if letter in options.wide:
            yield OptionReach(through)
            return
        if letter in options.valued:
            return


# Code of other languages in a command's words: whether it seems to start programs.


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
    """Return whether this code seems to start programs, or could hide that it does."""
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
    """Return the syntax nodes of code that imports a module and prints its description."""
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
    """Yield the name at the root of `torch.__version__` or `a.b.__file__`."""
    import ast

    if isinstance(node, ast.Attribute) and node.attr in _ABOUT:
        root = node.value
        while isinstance(root, ast.Attribute):
            root = root.value
        yield root
