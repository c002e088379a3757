"""Random YAML documents with comments in odd places, in many styles."""

from __future__ import annotations

import json
from random import Random

__all__ = ["mutated", "random_document"]

_TEXTS = (
    "plain",
    "amount > 0",
    "{amount}",
    "a: b",
    "a #b",
    "yes",
    "1.0",
    "1.2.3",
    "0x1F",
    "12:30",
    "",
    " lead",
    "trail ",
    "it's",
    'say "hi"',
    "back\\slash",
    "tab\there",
    "two\nlines",
    "ends\n",
    "ends\n\n",
    "\nstarts",
    "  in\n out",
    "ünï ☃ \U0001f600",
    "\u2028",
    "\x85",
    "- x",
    "? y",
    "<= 5",
    "a, b",
    "[x]",
    "#c",
    "word " * 40 + "end",
    "2025-01-08T10:00:00Z",
    "null",
    "~",
    "---",
    "...",
    "key:",
    "%x",
    "@y",
    "\ufeff",
)
_OTHERS = ("1", "1.50", "-3", "1e3", "true", "null", "~", "", "007", "+.5")


def random_document(seed: int) -> str:
    """A document of a seed."""
    return _Writer(Random(seed)).document()


def mutated(text: str, seed: int) -> str:
    """The text with some lines or characters put in, taken out or repeated."""
    random = Random(seed)
    for _ in range(random.randint(1, 4)):
        lines = text.split("\n")
        index = random.randrange(len(lines))
        kind = random.randrange(6)
        if kind == 0:
            lines.insert(index, " " * random.randrange(8) + "# note " + str(seed))
        elif kind == 1:
            lines[index] += "  # behind"
        elif kind == 2:
            lines.insert(index, "")
        elif kind == 3:
            del lines[index]
        elif kind == 4:
            lines[index] = lines[index].replace('"', "'")
        else:
            lines[index] = " " + lines[index]
        text = "\n".join(lines)
    return text


class _Writer:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.count = 0

    def document(self) -> str:
        names = ["node_id", "flow", "intent", "inputs", "x1", "type", "metadata"]
        self.random.shuffle(names)
        lines = self.notes(0)
        for name in names[: self.random.randint(1, 7)]:
            lines += self.pair(name, 0, 0)
        return "\n".join([*lines, *self.notes(0)]) + "\n"

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def note(self) -> str:
        self.count += 1
        return f"# note {self.count}"

    def notes(self, indent: int) -> list[str]:
        lines = []
        while self.chance(0.25):
            if self.chance(0.4):
                lines.append("")
            lines.append(" " * max(0, indent + self.random.choice((0, 0, 0, 2, -2))) + self.note())
        if self.chance(0.2):
            lines.append("")
        return lines

    def behind(self) -> str:
        return f" {self.note()}" if self.chance(0.2) else ""

    def key(self) -> str:
        self.count += 1
        return self.random.choice(("k{}", '"k {}"', "'q{}'", "on{}", "{}")).format(self.count)

    def pair(self, key: str, indent: int, depth: int) -> list[str]:
        pad = " " * indent
        kind = self.random.randrange(6 if depth < 4 else 2)
        if kind == 0 and self.chance(0.4):
            return [*self.notes(indent), *self.block(f"{pad}{key}:", indent)]
        if kind <= 1:
            return [*self.notes(indent), f"{pad}{key}: {self.scalar(flow=False)}{self.behind()}"]
        if kind == 2:
            return [*self.notes(indent), f"{pad}{key}: {self.flow(depth, indent)}{self.behind()}"]
        head = [*self.notes(indent), f"{pad}{key}:{self.behind()}"]
        if kind == 3:
            deeper = indent + self.random.choice((0, 2, 4))
            return head + self.items(deeper, depth + 1) + self.notes(indent)
        return head + self.pairs(indent + self.random.choice((1, 2, 4)), depth + 1) + self.notes(indent)

    def pairs(self, indent: int, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            lines += self.pair(self.key(), indent, depth)
        return lines

    def items(self, indent: int, depth: int) -> list[str]:
        lines: list[str] = []
        pad = " " * indent
        for _ in range(self.random.randint(1, 3)):
            lines += self.notes(indent)
            kind = self.random.randrange(5 if depth < 4 else 2)
            if kind == 0:
                lines.append(f"{pad}- {self.scalar(flow=False)}{self.behind()}")
            elif kind == 1:
                lines.append(f"{pad}- {self.flow(depth, indent)}{self.behind()}")
            elif kind == 2:
                lines += self.block(f"{pad}-", indent)
            elif kind == 3:
                lines.append(f"{pad}-{self.behind()}")
                lines += self.pairs(indent + 2, depth + 1)
            else:
                lines.append(f"{pad}- {self.key()}: {self.scalar(flow=False)}{self.behind()}")
                lines += self.pairs(indent + 2, depth + 1)
        return lines

    def block(self, head: str, indent: int) -> list[str]:
        mark = self.random.choice(("|", "|-", "|+", ">", ">-", ">+", "|2", ">2"))
        pad = " " * (indent + 2)
        rows = [pad + self.random.choice(("some words", "more # text", "", "  deeper", "last ")) for _ in range(3)]
        if "2" not in mark:
            rows.insert(0, pad + "first")
        return [f"{head} {mark}{self.behind()}", *rows]

    def scalar(self, *, flow: bool) -> str:
        if self.chance(0.3):
            other = self.random.choice(_OTHERS)
            return other or ("null" if flow else "")
        text = self.random.choice(_TEXTS)
        kind = self.random.randrange(3)
        if kind == 0 and text.isalnum():
            return text
        if kind == 1 and text.isprintable():
            return "'" + text.replace("'", "''") + "'"
        return json.dumps(text)

    def flow(self, depth: int, indent: int) -> str:
        parts = []
        is_mapping = self.chance(0.5)
        for _ in range(self.random.randint(0, 4)):
            is_deep = depth < 3 and self.chance(0.2)
            value = self.flow(depth + 1, indent) if is_deep else self.scalar(flow=True)
            parts.append(f"{self.key()}: {value}" if is_mapping else value)
        between = ", "
        if self.chance(0.2):
            between = f", {self.note()}\n{' ' * (indent + 4)}"
        text = between.join(parts)
        return f"{{{text}}}" if is_mapping else f"[{text}]"
