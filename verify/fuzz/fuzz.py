"""Bad input, by the thousand: whatever text comes, an answer or a LyraError, soon and in little memory.

`TARGETS` are functions of a seeded generator; each makes one input and hands it to a reader. Any other exception, a
second of work or 200 MB more memory is a failure that names its seed. Command lines are made of the pieces a shell has
words for, in any order, so that most of them are wrong in interesting ways.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lyra.core.clock import cpu_time
from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import LyraError
from lyra.tools.permissions import Layer, Permissions, Rule, permissions_of, subject_of
from lyra.tools.shell.command_line import read_line
from lyra.tools.shell.text_glob import TextGlob
from verify.fuzz import extension_fuzz, vega_fuzz, vesper_fuzz

__all__ = ["PIECES", "TARGETS", "Fuzzed", "command_line", "run"]

SECONDS_MAX: Final = 1.0
MEMORY_MB_MAX: Final = 200

PIECES: Final = (
    *(
        "rm",
        "r''m",
        '"rm"',
        "$X",
        "'",
        '"',
        "$(",
        "`",
        ")",
        "(",
        "((",
        "))",
        "{ ",
        "; }",
        "}",
        "{",
        ";",
        "&&",
        "||",
        "|",
    ),
    *(
        "&",
        "\n",
        " ",
        " ",
        " ",
        "x",
        "y=1",
        "a=",
        "<<E\n",
        "\nE\n",
        "<<'E'\n",
        "<<-E\n",
        "<<<",
        " <(",
        ">",
        "2>&1",
        "\\",
    ),
    *(
        "\\\n",
        "#",
        "$'",
        "${",
        "${x:-",
        "$((",
        "$[",
        "]",
        "[[ ",
        " ]]",
        "if ",
        "then ",
        "fi",
        "for i in ",
        "do ",
        "done",
    ),
    *("case x in ", "x) ", ";;", "esac", "function f ", "f()", "f", "eval ", "bash -c ", "sh ", "env ", "-c ", "trap "),
    *(" EXIT", "exec ", "command ", "echo ", "true ", "xargs ", "!", "coproc ", "time ", "-p ", "select ", "while "),
    *(
        "until ",
        "else ",
        "let ",
        "test ",
        "-v ",
        "a[",
        "source ",
        "/dev/stdin",
        "'rm x'",
        '"rm x"',
        "$(rm x)",
        "`rm x`",
    ),
    *("rm x", "alias q=", "timeout 5 ", "nohup ", "printf ", "declare ", "\\'", '\\"', "~", "*", "?", "+(", "@P}"),
    *("x='$(rm x)'", "-S", "-u n ", "in ", "..", ",rm", "0", "1", "export ", "sudo ", "find . -exec ", "\\;", "git "),
)
_RULES: Final = (
    "Bash",
    "Bash(rm *)",
    "Bash(git *)",
    "Read(",
    "*",
    "Edit(src/**)",
    "WebFetch(*.org)",
    ")",
    "(",
    "mcp__*",
)


def command_line(rng: ProcessRandom, most: int = 9) -> str:
    """A line made of a shell's own pieces."""
    line = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, most)))
    return rng.choice(("echo ", "true;", "x=1 ", "", "", "")) + line


def _text(rng: ProcessRandom) -> str:
    """Any characters at all, sometimes very many of few."""
    if rng.random() < 0.05:
        return "".join(rng.choice(PIECES) for _ in range(3)) * rng.randint(1, 20_000)
    return "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x3000)))) for _ in range(rng.randint(0, 40)))


def _shell(rng: ProcessRandom) -> None:
    line = _text(rng) if rng.random() < 0.2 else command_line(rng, 30)
    read = read_line(line)
    for pattern in ("rm *", "git * --dry-run", "*a*b*c*d*", "?m x"):
        glob = TextGlob(pattern)
        read.is_touched_by(glob)
        read.is_allowed_by(glob)


def _rule(rng: ProcessRandom) -> None:
    text = (
        _text(rng) if rng.random() < 0.3 else "".join(rng.choice((*_RULES, *PIECES)) for _ in range(rng.randint(1, 3)))
    )
    tool = rng.choice(("Bash", "Read", "Edit", "Grep", "WebFetch", "TodoWrite", "mcp__a__b", _text(rng)))
    value: Any = rng.choice((_text(rng), command_line(rng), f"https://{_text(rng)}/", 3, None, [], f"../{_text(rng)}"))
    name = rng.choice(("command", "file_path", "path", "url", "text"))
    subject = subject_of(tool, {name: value}, workspace="/work", home="/home/x")
    Permissions(mode="default").decide(subject)
    rules = [Rule(text, rng.choice(("allow", "ask", "deny")), workspace="/work")]
    Permissions(rules, workspace="/work").decide(subject, tainted=rng.random() < 0.5, attended=rng.random() < 0.5)


def _settings(rng: ProcessRandom) -> None:
    values: tuple[Any, ...] = (
        [_text(rng)],
        list(_RULES),
        [{"rule": "Bash(rm *)", "match": [_text(rng)]}],
        3,
        "x",
        None,
    )
    keys = ("allow", "ask", "deny", "mode", "protected", "forbid_modes", "rules", "match")
    settings = {rng.choice(keys): rng.choice(values) for _ in range(rng.randint(0, 3))}
    permissions_of([Layer(rng.choice(("managed", "user", "project", "flags", "other")), settings)])


TARGETS: Final[dict[str, Callable[[ProcessRandom], None]]] = {
    "shell": _shell,
    "rule": _rule,
    "settings": _settings,
    "vega source": vega_fuzz.source,
    "vega bytecode": vega_fuzz.bytecode,
    "vesper node": vesper_fuzz.node,
    "vesper expression": vesper_fuzz.expression,
    "extension file": extension_fuzz.markdown,
    "plugin manifest": extension_fuzz.manifest,
}


class Fuzzed(NamedTuple):
    """What came of a run."""

    inputs: int
    refused: int  # answered with a LyraError
    slowest_s: float
    grown_mb: float
    failures: list[str]


class _Tried(NamedTuple):
    """One input, given once."""

    spent_s: float  # work, whatever else the machine does meanwhile
    refused: bool
    problem: str


def _tried(name: str, seed: int) -> _Tried:
    refused, problem = False, ""
    began = cpu_time()
    try:
        TARGETS[name](make_random(seed))
    except LyraError:
        refused = True
    except Exception as error:  # noqa: BLE001 - that is what this looks for
        problem = f"{type(error).__name__}: {error}"
    return _Tried(cpu_time() - began, refused, problem)


def run(n: int, seed: int, progress: Callable[[int, int], None] | None = None) -> Fuzzed:
    """`n` inputs, each from a seed of its own, the targets in turn."""
    failures: list[str] = []
    refused, slowest = 0, 0.0
    before = _memory_mb()
    names = tuple(TARGETS)
    for number in range(n):
        name = names[number % len(names)]
        tried = _tried(name, seed + number)
        if tried.spent_s > SECONDS_MAX:  # the garbage collector may have run; try once more
            tried = min(tried, _tried(name, seed + number), key=lambda attempt: attempt.spent_s)
        refused += tried.refused
        slowest = max(slowest, tried.spent_s)
        if tried.problem:
            failures.append(f"{name}, seed {seed + number}: {tried.problem}")
        if tried.spent_s > SECONDS_MAX:
            failures.append(f"{name}, seed {seed + number}: took {tried.spent_s:.1f} s")
        if progress is not None:
            progress(number + 1, n)
    grown = _memory_mb() - before
    if grown > MEMORY_MB_MAX:
        failures.append(f"memory grew by {grown:.0f} MB")
    return Fuzzed(n, refused, slowest, grown, failures)


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
