"""Templates: texts with `{expression}` in them.

`{{` and `}}` stand for braces. A placeholder holds a path (`{user.name}`), a call of a built-in (`{current_year()}`)
or any other expression. A template that is exactly one placeholder has that value with its type; any other is a
text. What is inside a placeholder is parsed, never run.
"""

from __future__ import annotations

import msgspec

from lyra.vesper.expressions.parser import parse_placeholder
from lyra.vesper.expressions.terms import Term
from lyra.vesper.expressions.tokens import syntax_error
from lyra.vesper.values.limits import TEMPLATE_CHARS_MAX, TEMPLATE_PLACEHOLDERS_MAX


class ParsedTemplate(msgspec.Struct, frozen=True):
    """Texts and terms in order; neighbouring texts are joined."""

    parts: tuple[str | Term, ...]

    @property
    def single(self) -> Term | None:
        """The term of a template that is nothing else."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], Term) else None

    @property
    def text(self) -> str | None:
        """The text of a template without placeholders."""
        return None if any(isinstance(part, Term) for part in self.parts) else "".join(map(str, self.parts))


def has_placeholder(text: str) -> bool:
    """Whether a text has a brace that is not doubled."""
    return "{" in text.replace("{{", "")


def parse_template(text: str) -> ParsedTemplate:
    """The parts of a template; ParseError with the offset of a mistake."""
    if len(text) > TEMPLATE_CHARS_MAX:
        raise syntax_error(f"the template has more than {TEMPLATE_CHARS_MAX} characters", 0, 0)
    parts: list[str | Term] = []
    plain: list[str] = []
    position = count = 0
    while position < len(text):
        char = text[position]
        if char in "{}" and text[position + 1 : position + 2] == char:
            plain.append(char)
            position += 2
        elif char == "{":
            count += 1
            if count > TEMPLATE_PLACEHOLDERS_MAX:
                raise syntax_error(f"more than {TEMPLATE_PLACEHOLDERS_MAX} placeholders", position, position + 1)
            term, position = parse_placeholder(text, position + 1)
            if plain:
                parts.append("".join(plain))
                plain = []
            parts.append(term)
        elif char == "}":
            raise syntax_error("a closing brace without an opening one", position, position + 1, hint="write }}")
        else:
            plain.append(char)
            position += 1
    if plain or not parts:
        parts.append("".join(plain))
    return ParsedTemplate(tuple(parts))
