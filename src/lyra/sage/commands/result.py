"""SlashResult: what a slash command gives back, as plain data; SlashArguments: what it is given.

A block is a mapping with a `type`:

    text     text                         Markdown
    lines    lines, title                 texts as they are
    table    columns, rows, title         cells are texts
    bars     rows, of, title              rows of (name, value, words); `of` is the value of a full bar
    diff     diff, title                  a unified diff

A face shows the blocks, then does what else the result asks for: send `prompt` to the session, with `send_with` as
further arguments of its method `send`; open another session (`open_session`); put a `draft` into the prompt; or leave
(`exit`). A face that can offer `choices` shows those in place of the blocks: each is a slash command.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.checking.check import did_you_mean
from lyra.core.clock import SystemClock
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError

Block = dict[str, Any]
_FENCES: Final = {"diff": "diff"}  # the language of a block of code by the type of the block; text for the others


class SlashChoice(NamedTuple):
    """One row of what a person may choose, and the slash command that choosing it means."""

    label: str
    about: str
    command: str


class Choices(msgspec.Struct, frozen=True):
    """`search` gives rows for words that no label has, such as what was said in a session."""

    title: str
    rows: Sequence[SlashChoice]
    search: Callable[[str], list[SlashChoice]] | None = None


class SlashResult(msgspec.Struct, kw_only=True):
    """`open_session` is the id of a session; with `fork` a copy of it is to be opened, of the conversation before the
    turn `before_turn` where that is named. `refused` says why nothing was done, in a sentence that the blocks have,
    too."""

    blocks: list[Block] = []
    prompt: str | None = None
    send_with: dict[str, Any] = {}
    open_session: str = ""
    fork: bool = False
    before_turn: int | None = None
    draft: str = ""
    choices: Choices | None = None
    exit: bool = False
    themes: tuple[str, ...] = ()  # of which a terminal shows a sample; one alone is taken from now on
    refused: str = ""

    @classmethod
    def from_blocks(cls, *blocks: Block | str, **more: Any) -> SlashResult:
        """Return a result with these blocks; a text is a block of one line."""
        return cls(blocks=[lines([block]) if isinstance(block, str) else block for block in blocks], **more)


def text(markdown: str) -> Block:
    return {"type": "text", "text": markdown}


def lines(texts: Iterable[str], *, title: str = "") -> Block:
    return _add_title({"type": "lines", "lines": list(texts)}, title)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> Block:
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    return _add_title({"type": "table", "columns": list(columns), "rows": cells}, title)


def bars(rows: Iterable[tuple[str, float, str]], *, of: float | None = None, title: str = "") -> Block:
    return _add_title({"type": "bars", "rows": [list(row) for row in rows], "of": of}, title)


def diff(unified: str, *, title: str = "") -> Block:
    return _add_title({"type": "diff", "diff": unified}, title)


def as_markdown(blocks: Iterable[Block]) -> str:
    """Return the blocks as Markdown, for a face without its own layout."""
    texts = []
    for block in blocks:
        title = f"**{block['title']}**\n\n" if block.get("title") else ""
        kind, content = block["type"], _content(block)
        texts.append(
            f"{title}{content}" if kind == "text" else f"{title}```{_FENCES.get(kind, 'text')}\n{content}\n```"
        )
    return "\n\n".join(texts)


def render_text(blocks: Iterable[Block]) -> str:
    """Return the blocks as they are read on paper: titles and lines."""
    texts = (f"{block['title']}\n{_content(block)}" if block.get("title") else _content(block) for block in blocks)
    return "\n\n".join(filter(None, texts))


def _content(block: Block) -> str:
    """Return the lines of a block without its title, columns under each other."""
    kind = block["type"]
    if kind in ("text", "diff"):
        return str(block[kind])
    if kind == "table":
        rows = [block["columns"], *block["rows"]]
    elif kind == "bars":
        rows = [[name, words] for name, _, words in block["rows"]]
    else:
        rows = [[line] for line in block["lines"]]
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))] if rows else []
    lined = (
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
    return "\n".join(lined)


def _add_title(block: Block, title: str) -> Block:
    return {**block, "title": title} if title else block


_LENGTH_MAX: Final = 90


def age(time: float) -> str:
    """Return how long ago, in the largest unit."""
    seconds = max(0.0, SystemClock().now() - time)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "now"


def dollars(usd: float | None) -> str:
    """Return an amount to two digits, a small one to four; `?` where the price of a call is not known."""
    if usd is None:
        return "?"
    return f"${usd:.2f}" if usd >= 0.1 or not usd else f"${usd:.4f}"


def tokens(count: int) -> str:
    """Return a count with spaces between thousands."""
    return f"{count:,}".replace(",", " ")


def percent(share: float) -> str:
    return f"{round(100 * share)} %"


def short(text: str, length: int = _LENGTH_MAX) -> str:
    """Return the beginning of a text on one line, escape sequences made visible."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


_TEXT_LENGTH_MAX: Final = 100_000


class SlashArguments:
    """What follows the name of a slash command, as text and as words split the way a shell does. `text` is as it was
    typed. `usage` is shown in errors: the command with its argument hint."""

    __slots__ = ("_words", "text", "usage")

    def __init__(self, text: str, usage: str) -> None:
        if len(text) > _TEXT_LENGTH_MAX:
            raise ConfigError(f"the arguments have at most {_TEXT_LENGTH_MAX} characters, not {len(text)}")
        self.text = text.strip()
        self.usage = usage
        self._words: list[str] | None = None

    @property
    def words(self) -> list[str]:
        """The words without flags."""
        return [word for word in self._split() if not word.startswith("--")]

    def flags(self, *known: str) -> set[str]:
        """Return the flags that are given, without their dashes; one that is not known is an error."""
        flags = {word[2:] for word in self._split() if word.startswith("--")}
        for flag in sorted(flags - set(known)):
            near = did_you_mean(flag, known)
            raise self.mistake(f"there is no flag --{flag}", f"did you mean --{near}?" if near else "")
        return flags

    def _split(self) -> list[str]:
        if self._words is None:
            try:
                self._words = shlex.split(self.text)
            except ValueError as error:
                raise self.mistake(f"the arguments cannot be split into words: {error}", "close the quote") from None
        return self._words

    # ------------------------------------------------------------ what a command expects
    def none(self) -> None:
        """No argument at all."""
        if self.text:
            raise self.mistake(f"{self.text[:40]!r} is not expected here")

    def at_most(self, count: int) -> list[str]:
        words = self.words
        if len(words) > count:
            raise self.mistake(f"{words[count][:40]!r} is not expected here")
        return words

    def single(self, what: str) -> str:
        """Exactly one word."""
        words = self.at_most(1)
        if not words:
            raise self.mistake(f"{what} is missing")
        return words[0]

    def turn(self, word: str) -> int:
        if not word.isascii() or not word.isdecimal() or not 0 < int(word) < 10**9:
            raise self.mistake(f"{word[:40]!r} is not the number of a turn")
        return int(word)

    def choice(self, word: str, choices: Iterable[str]) -> str:
        known = list(choices)
        if word in known:
            return word
        near = did_you_mean(word, known)
        raise self.mistake(f"{word[:40]!r} is none of {', '.join(known)}", f"did you mean {near}?" if near else "")

    def mistake(self, sentence: str, hint: str = "") -> ConfigError:
        return ConfigError(sentence, hint=f"{hint} " * bool(hint) + f"usage: {self.usage}", key="arguments")
