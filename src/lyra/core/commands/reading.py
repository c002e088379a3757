"""Programs that only read and print: a call of one needs no question where a sandbox holds it.

`reads_only(words)` is true for a call that is known to write no file and to run no other program, whatever its other
arguments are. The table is short on purpose: a program, a subcommand or an option that is not in it is asked about.
What a program may reach by its options is the table `options`; here stands what it writes without any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lyra.core.commands.option_reach import words_of
from lyra.core.commands.programs import INERT, count_named_words, program_name, reaches

# No option of these writes or runs anything.
_READERS: Final = INERT | words_of(
    "pwd true false cut tr comm paste fold fmt expand unexpand column seq printf test [ realpath readlink"
    " cksum b2sum sha1sum sha512sum od hd strings diff cmp jq id whoami groups uname arch nproc uptime free"
    " which type cd sleep ps pgrep rg sort find uniq date tree file sed"
)
# Beginnings of words with which these programs write, or set something.
_WRITES: Final[dict[str, tuple[str, ...]]] = {
    "date": ("-s", "--s", "-f", "--f", *"0123456789"),
    "tree": ("-o", "-R", "--output"),
    "file": ("-C", "--compile", "-m", "-z", "-Z"),
    "sed": ("-i", "--in", "-f", "--f", "-s", "--s"),
}
# The subcommands of a program that read.
_SUBCOMMANDS: Final[dict[str, frozenset[str]]] = {
    "pip": words_of("list show freeze check"),
    "npm": words_of("ls list"),
    "go": words_of("version"),
}
_VERSIONS: Final = words_of(
    "python node npm npx yarn pnpm bun deno go cargo rustc ruby java javac gcc g++ clang make cmake pip uv git docker"
    " pytest ruff mypy black tsc eslint php perl"
)
_VERSION_WORDS: Final = frozenset({"--version", "-V"})
_GIT: Final = words_of(
    "status log diff show blame annotate ls-files ls-tree rev-parse rev-list describe shortlog name-rev merge-base"
    " for-each-ref diff-tree diff-index diff-files check-ignore count-objects show-ref cherry range-diff grep"
    " show-branch version whatchanged"
)
# Subcommands of git that read only with certain words after them.
_GIT_LISTS: Final[dict[str, frozenset[str]]] = {
    "branch": words_of(
        "-a -r -v -vv --all --remotes --list -l --show-current --verbose --no-color --merged --no-merged --contains"
    ),
    "tag": words_of("-l --list -n --contains --points-at --merged --no-merged"),
    "remote": words_of("-v --verbose get-url"),
    "stash": words_of("list show"),
    "worktree": words_of("list"),
    "reflog": words_of("show"),
    "config": words_of("--get --get-all --list -l get list"),
    "notes": words_of("list show"),
}
_GIT_NAMES: Final = frozenset({"--merged", "--no-merged", "--contains", "--points-at", "--list", "-l", "-n"})
_GIT_PLAIN: Final = frozenset({"--no-pager", "-P", "--no-optional-locks", "--no-color"})


def reads_only(words: Sequence[str]) -> bool:
    """Return whether a call of a program reads and prints, and nothing else."""
    name = program_name(words[0])
    if "/" in words[0] and not words[0].startswith(("/usr/bin/", "/bin/", "/usr/local/bin/")):
        return False  # a program of the workspace may have any name
    if len(words) == 2 and words[1] in _VERSION_WORDS and name in _VERSIONS:
        return True
    if name == "git":
        return _git(words)
    if name == "xargs":  # what it runs must have no option that does anything
        rest = [word for word in words[1:] if word not in ("-0", "-r", "--null")]
        return bool(rest) and rest[0] in INERT
    if name in ("env", "printenv"):
        return len(words) == 1
    if name == "command":
        return len(words) == 3 and words[1] in ("-v", "-V")
    if name == "uniq" and sum(word[:1] != "-" for word in words[1:]) > 1:
        return False  # its second operand is a file that it writes
    if any(word.startswith(_WRITES.get(name, ())) for word in words[1:]):
        return False
    is_known = name in _READERS or (len(words) > 1 and words[1] in _SUBCOMMANDS.get(name, ()))
    return is_known and not reaches(words) and count_named_words(words) < 2


def _git(words: Sequence[str]) -> bool:
    index = 1
    while index < len(words) and words[index] in _GIT_PLAIN:
        index += 1
    command, rest = (words[index], words[index + 1 :]) if index < len(words) else ("", ())
    if any(
        word.startswith(("--ext-diff", "--textconv", "--filters", "--output", "-O", "--open", "--ext")) for word in rest
    ):
        return False
    if command in _GIT_LISTS:
        known = _GIT_LISTS[command]
        if not rest:
            return command not in ("stash", "config", "worktree", "notes")
        if rest[0] not in known:
            return False
        names_follow = command in ("remote", "stash", "reflog", "config", "notes") or rest[0] in _GIT_NAMES
        return names_follow or all(word in known for word in rest)
    return command in _GIT and not reaches(words)
