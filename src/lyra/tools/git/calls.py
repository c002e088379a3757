"""Which command lines the tool `Git` takes: `read_call(text)` gives the words, and what such a call does.

The table names every subcommand with every option that it may have; all else is refused with a reason. What is left
out reads files outside the repository (`commit -F`, `diff --no-index`), runs programs (`rebase --exec`), writes
settings (`branch -u`) or asks a person at a terminal (`add -p`). `push`, `fetch` and `pull` go to a remote that the
settings name, never to an address; `gh` has the subcommands that people use for pull requests and issues. Nothing here
runs anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lyra.core.commands.option_reach import words_of
from lyra.core.commands.reading import reads_only
from lyra.errors import ToolError
from lyra.tools.permissions.subjects import to_git_line
from lyra.tools.shell.command_line import read_line
from lyra.tools.shell.grammar import read_script

# Options by subcommand; `=` behind one says that it takes a value.
_QUIET: Final = " -q --quiet"
_SEQUENCE: Final = " --continue --abort --skip --quit -X= --strategy-option="
COMMANDS: Final[dict[str, frozenset[str]]] = {
    name: words_of(options)
    for name, options in {
        "add": "-A --all -u --update -n --dry-run -v --verbose -N --intent-to-add --renormalize --chmod=",
        "commit": "-a --all -m= --message= --amend --no-edit --allow-empty --allow-empty-message -s --signoff -n"
        " --no-verify --author= --date= --fixup= --squash= --reset-author --dry-run -o --only -i --include --trailer="
        + _QUIET,
        "branch": "-d -D --delete -f --force --no-track" + _QUIET,
        "switch": "-c= --create= -C= --force-create= -d --detach -f --force --discard-changes -m --merge --orphan="
        " --no-track --guess --no-guess" + _QUIET,
        "checkout": "-b= -B= -f --force -m --merge --ours --theirs -d --detach --orphan= --no-track" + _QUIET,
        "restore": "-s= --source= -S --staged -W --worktree --ours --theirs -m --merge" + _QUIET,
        "reset": "--soft --mixed --hard --keep --merge -N --intent-to-add" + _QUIET,
        "stash": "-m= --message= -u --include-untracked -a --all -k --keep-index -S --staged --index" + _QUIET,
        "tag": "-a --annotate -m= --message= -d --delete -f --force",
        "merge": "--no-ff --ff --ff-only --no-commit --commit --squash --no-squash -m= --message= --no-edit --stat -n"
        " --no-stat --allow-unrelated-histories --no-verify" + _QUIET + _SEQUENCE,
        "rebase": "--onto= -i --interactive --autosquash --no-autosquash --autostash --no-autostash --keep-base --root"
        " -f --force-rebase --no-ff -r --rebase-merges --no-verify" + _QUIET + _SEQUENCE,
        "cherry-pick": "-x -n --no-commit -m= --mainline= --allow-empty -s --signoff --keep-redundant-commits"
        + _SEQUENCE,
        "revert": "-n --no-commit --no-edit -m= --mainline= -s" + _SEQUENCE,
        "rm": "-r --cached -f --force -n --dry-run --ignore-unmatch" + _QUIET,
        "mv": "-f --force -n --dry-run -k -v --verbose",
        "push": "-f --force --force-with-lease --force-with-lease= --tags --follow-tags -d --delete -n --dry-run"
        " -v --verbose --no-verify --atomic --all --porcelain" + _QUIET,
        "fetch": "-p --prune --tags -t --no-tags --all --depth= --unshallow -v --verbose -n --dry-run -f --force"
        + _QUIET,
        "pull": "--rebase --rebase= --no-rebase -r --ff-only --ff --no-ff -p --prune --tags --autostash --no-autostash"
        " -v --verbose --no-edit --allow-unrelated-histories" + _QUIET,
    }.items()
}
_STASH: Final = words_of("push pop apply drop clear branch list show")
_NETWORK: Final = words_of("push fetch pull")
# These change files of the working tree by what commits hold.
_CHECKS_OUT: Final = words_of("switch checkout restore reset stash merge rebase cherry-pick revert pull")
# These pass the content of files through the filters that attributes name.
_FILTERS: Final = _CHECKS_OUT | words_of("add commit rm mv")
_REBASE_MODES: Final = words_of("true false merges")
_GH: Final[dict[str, frozenset[str]]] = {
    "pr": words_of("create list view status checks diff comment edit ready close reopen merge review"),
    "issue": words_of("create list view status comment close reopen edit"),
    "run": words_of("list view"),
    "release": words_of("list view"),
    "repo": words_of("view"),
}
# Of `gh`: these read a file, start a program, or take another repository's address.
_GH_REFUSED: Final = (
    "-F",
    "--body-file",
    "--notes-file",
    "-T",
    "--template",
    "-w",
    "--web",
    "-e",
    "--editor",
    "--recover",
)
_READS: Final = words_of("status branch tag remote stash")  # with these no setting and no option reads files elsewhere


class GitCall(NamedTuple):
    """A command line of the tool: all its words, the subcommand, and what it does."""

    words: tuple[str, ...]
    name: str
    network: bool = False
    reads: bool = False

    @property
    def checks_out(self) -> bool:
        return self.name in _CHECKS_OUT and not self.reads

    @property
    def filters(self) -> bool:
        return self.name in _FILTERS and not self.reads

    @property
    def arguments(self) -> list[str]:
        """The words after the subcommand that are no options, up to the paths."""
        rest = list(self.words[2:])
        rest = rest[: rest.index("--")] if "--" in rest else rest
        return [word for word in rest if word[:1] != "-"]

    @property
    def revisions(self) -> list[str]:
        """The words that may name a commit, values of options among them."""
        return [*self.arguments, *(word.partition("=")[2] for word in self.words if word[:2] == "--" and "=" in word)]


def read_call(command: str) -> GitCall:
    """Return the call; ToolError where it is not one that the tool takes."""
    line = read_line(to_git_line(command))
    if line.single is None or line.unsure is not None:
        raise _refuse("it is one git command, without pipes, variables and redirections")
    script = read_script(line.text)
    shell_words = script.commands[0].words
    words = tuple(word.text for word in shell_words)
    if script.commands[0].assignments or script.commands[0].redirects or len(words) < 2:
        raise _refuse("it is one git command, without variables before it and without redirections")
    if words[0] == "gh":
        known = _GH.get(words[1], frozenset())
        if len(words) < 3 or words[2] not in known:
            listed = "; ".join(f"gh {name} {'|'.join(sorted(those))}" for name, those in _GH.items())
            raise _refuse(f"of gh it takes {listed}")
        for word in words[3:]:
            if word.startswith(_GH_REFUSED):
                raise _refuse(f"gh {words[1]} with {word[:40]} is not taken: it reads a file, or needs a person")
        return GitCall(words, f"gh {words[1]}", network=True)
    name = words[1]
    if name in _READS and reads_only(words) and "show" not in words:
        return GitCall(words, name, reads=True)
    options = COMMANDS.get(name)
    if options is None:
        hint = "; to read, run git with Bash" if reads_only(words) else ""
        raise _refuse(f"git {name[:40]} is not one of status, {', '.join(COMMANDS)}{hint}")
    plain = _check_options(name, words[2:], options)
    if name == "stash" and plain and plain[0] not in _STASH:
        raise _refuse(f"git stash {plain[0][:40]} is not one of {', '.join(sorted(_STASH))}")
    # An address in the place of a remote is refused: its owner would be sent what the repository holds.
    if name in _NETWORK and plain and (":" in plain[0] or "/" in plain[0] or plain[0].startswith(".")):
        raise _refuse(f"{plain[0][:80]} is an address; name a remote of the repository, such as origin")
    if name == "branch" and not plain:
        raise _refuse("name the branch")
    return GitCall(words, name, network=name in _NETWORK)


def _check_options(name: str, words: Sequence[str], options: frozenset[str]) -> list[str]:
    """Refuse an option that the table does not have. Returns the other words."""
    plain: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return plain
        if word[:2] == "--":
            option, separator, value = word.partition("=")
            if separator and f"{option}=" in options:
                if name == "pull" and value not in _REBASE_MODES:
                    raise _refuse(f"git pull --rebase={value[:40]} needs a person at a terminal")
            elif not separator and option in options:
                pass
            elif not separator and f"{option}=" in options:
                index += 1  # the next word is its value
            else:
                raise _refuse_option(name, word)
        elif word[:1] == "-" and len(word) > 1:
            index += _skip_letters(name, word, options)
        else:
            plain.append(word)
        index += 1
    return plain


def _skip_letters(name: str, word: str, options: frozenset[str]) -> int:
    """Check a cluster of short options. Returns how many words after it are their values."""
    for place, letter in enumerate(word[1:], 2):
        if f"-{letter}=" in options:
            return 0 if place < len(word) else 1
        if f"-{letter}" not in options:
            raise _refuse_option(name, word)
    return 0


def _refuse_option(name: str, word: str) -> ToolError:
    why = "it would read other files, run a program, write settings or ask a person"
    return _refuse(f"git {name} with {word[:40]}: {why}")


def _refuse(why: str) -> ToolError:
    return ToolError(f"the tool Git does not take this: {why}", reason="invalid_arguments")
