"""What is wrong with a text, for an editor: the remarks of parser and checker, and what imports bring with them.

A mistake in an imported file is told at the import that leads to it, with its own place beside it. `thorough` also
compiles, as `vega check` does: there is little that only the compiler sees, so that is asked on opening and saving, not
at every key.
"""

from __future__ import annotations

from lyra.errors import SourceError
from lyra.lsp.language import Elsewhere, Fix, Remark, word_fixes
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.syntax import ast
from lyra.vega.syntax.source import Diagnostic, Source


def diagnose(analysis: Analysis, *, thorough: bool = False) -> list[Remark]:
    """Every remark about a text, in order of place."""
    problems = list(analysis.parsed.problems)
    if not problems:
        problems = analysis.check()
        if thorough and not any(problem.is_error for problem in problems):
            problems += _compile_problems(analysis)
    own = [_remark(problem, analysis.source) for problem in problems if problem.file == analysis.name]
    others = [problem for problem in problems if problem.file != analysis.name]
    return sorted(own + _import_problems(analysis, others), key=lambda remark: remark.at)


def _remark(problem: Diagnostic, source: Source) -> Remark:
    offset = max(0, min(problem.at, len(source.text)))
    end = max(offset, min(problem.end, len(source.text)))
    line_end = source.text.find("\n", offset)
    if 0 <= line_end < end:  # an editor underlines the line it begins on, not the whole block behind it
        end = max(offset, line_end)
    return Remark(offset, end, problem.message, problem.hint, problem.severity)


def _compile_problems(analysis: Analysis) -> list[Diagnostic]:
    """Return the problems that only the compiler sees."""
    from lyra.vega.compiler.compiler import compile_module

    try:
        compile_module(analysis.module, analysis.source, load=analysis.load)
    except SourceError as error:
        fields = error.fields
        if fields.get("problems"):
            return list(fields["problems"])
        file, line, column = (str(fields.get("file")), int(fields.get("line") or 1), int(fields.get("column") or 1))
        starts = analysis.source.starts
        offset = starts[min(line, len(starts)) - 1] + column - 1 if file == analysis.name else 0
        return [
            Diagnostic(
                file=file,
                line=line,
                column=column,
                message=error.message,
                hint=error.hint or "",
                at=offset,
                end=offset + 1,
            )
        ]
    return []


def _import_problems(analysis: Analysis, problems: list[Diagnostic]) -> list[Remark]:
    """Return the mistakes of other files, at the imports that lead to them."""
    if not problems:
        return []
    by_file: dict[str, list[Diagnostic]] = {}
    for problem in problems:
        by_file.setdefault(problem.file, []).append(problem)
    imports = [(node, _find_reachable(node, analysis)) for node in analysis.imports()]
    remarks = []
    for file, told in by_file.items():
        node = next((node for node, names in imports if file in names), imports[0][0] if imports else None)
        offset = analysis.text.find('"', node.at) if node is not None else 0
        end = offset + len(node.target) + 2 if node is not None else 1
        count = f"{len(told)} mistakes" if len(told) > 1 else "a mistake"
        there = tuple(Elsewhere(file, mistake.line, mistake.column, mistake.message) for mistake in told[:5])
        remarks.append(
            Remark(offset, end, f"`{file.rpartition('/')[2]}` has {count}: {told[0].message}", elsewhere=there)
        )
    return remarks


def _find_reachable(node: ast.Import, analysis: Analysis) -> set[str]:
    """Return the files that one import leads to."""
    files: set[str] = set()
    todo: list[tuple[str, str]] = [(node.target, analysis.name)]
    while todo and analysis.load is not None:
        loaded = analysis.load(*todo.pop())
        if loaded is not None and loaded[0] not in files and loaded[0] != analysis.name:
            files.add(loaded[0])
            inner = Analysis(loaded[1], loaded[0], analysis.load)
            todo += [(import_node.target, loaded[0]) for import_node in inner.imports()]
    return files


def fixes_of(remark: Remark, text: str) -> list[Fix]:
    """Return what would mend it, where that is certain enough; of several words that may be meant, one fix each."""
    if remark.message.startswith("missing `;`"):
        return [Fix(remark.at, remark.at, ";", "Add `;`")]
    return word_fixes(remark, text)
