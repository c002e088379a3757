"""The elements of Markdown that rich would show otherwise: plain headings, code without a background, plain bullets.

Imports rich's Markdown, and with it the highlighter; only `markdown_view` imports this module, at its first use.

It stands alone so that rich's Markdown is imported at its first use.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.syntax import Syntax
from rich.table import Table


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _BareCode(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(
            code, self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 0, 0, 2), background_color="default"
        )


class _OpenTable(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich import box

        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                part.box = box.SIMPLE_HEAD if options.encoding.startswith("utf") else box.ASCII
                part.pad_edge = False
            yield part


class PlainMarkdown(Markdown):
    """Markdown for a screen whose lines stay: nothing is centred, framed or filled."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _BareCode,
        "code_block": _BareCode,
        "table_open": _OpenTable,
    }
    parsed: Any
