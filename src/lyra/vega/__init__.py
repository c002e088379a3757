"""Vega: a small compiled language for agent programs.

    from lyra import vega

    module = vega.parse('print("hello");')
    for problem in vega.check(text, "review.vega"):
        print(problem.render())

`syntax.source` says where things stand, `syntax.lexer` and `syntax.parser` make the tree of `syntax.ast`, `checker`
judges it, `format` writes it back. Everything is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra._imports import on_first_use

if TYPE_CHECKING:
    from collections.abc import Collection

    from lyra.errors import VegaError
    from lyra.vega.bytecode.program import Program
    from lyra.vega.checker.checker import Load
    from lyra.vega.syntax.ast import Module
    from lyra.vega.syntax.source import Diagnostic

__all__ = ["Program", "VegaError", "check", "compile", "format_source", "parse", "run"]


def parse(text: str, name: str = "<vega>") -> Module:
    """Return the tree of a source; ParseError with all mistakes in `fields["problems"]`."""
    from lyra.vega.syntax.parser import parse as parse_text

    return parse_text(text, name)


def check(text: str, name: str = "<vega>", *, load: Load | None = None) -> list[Diagnostic]:
    """Every mistake and warning in a source, in order of place. `load` finds the text of an import."""
    from lyra.vega.checker.checker import check_source

    return check_source(text, name, load=load)


def format_source(text: str, name: str = "<vega>") -> str:
    """Return the source in its one layout; ParseError if it cannot be read."""
    from lyra.vega.format.formatter import format_source as format_text

    return format_text(text, name)


def compile(  # noqa: A001 - the word for it, as in `re.compile`
    text: str, name: str = "<vega>", *, load: Load | None = None, host_names: Collection[str] = ()
) -> Program:
    """Return a source as a Program; ParseError or CheckError with all mistakes in `fields["problems"]`. `host_names`
    are functions that the program may call and its host will answer."""
    from lyra.vega.checker.checker import parse_and_check
    from lyra.vega.compiler.compiler import compile_module
    from lyra.vega.syntax.source import Source

    module = parse_and_check(text, name, load=load, host_names=host_names)
    return compile_module(module, Source(name, text), load=load, host_names=host_names)


def run(source: str | Program, **options: Any) -> Any:
    """Run a source or a Program on Lyra's kernel: what its `main` returns, or a VegaError. Awaited in a running loop.

    The options are those of `lyra.vega.runtime.run.run`: `model`, `budget`, `args`, `settings`, `stdout`, `stderr`,
    `host`, `python`, `kernel`, `folder`, `grant`, `name`, `load`, `picture`, `servers`, `nodes`,
    `alone`, `sequential`.
    """
    from lyra.vega.runtime.run import run as run_program

    return run_program(source, **options)


if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "bytecode.program": "Program",
            "values.values": "VegaError",
        },
    )
