"""The language server: from a change in a file of a thousand lines to its diagnostics, and how long it takes to start.

The server is a process of its own, spoken to over its pipes as an editor does; a change is one character in the middle
of the file. Wall time is what the person at the editor waits; a busy machine shows in it, so the best of many counts.
The rows of the core are CPU time in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, at_most, interleave
from benchmarks.spawn import environment
from benchmarks.vega_parser import program
from lyra.lsp.texts import Document, Position, TextChange
from lyra.vega.lsp.language import colour_words, diagnose
from lyra.vega.lsp.project import Project

_URI = "file:///bench/large.vega"
_SERVER = "import sys; from lyra.cli.main import vega; sys.exit(vega())"


class _Editor:
    """As much of a client as is needed to wait for an answer."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )

    def send(self, method: str, params: Any, **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        out, length = self.process.stdout, 0
        assert out is not None
        while (line := out.readline()) not in (b"", b"\r\n"):
            if line.startswith(b"Content-Length:"):
                length = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(out.read(length))
        return message

    def ask(self, method: str, params: Any) -> dict[str, Any]:
        self.send(method, params, id=method)
        while (answer := self.hear()).get("id") != method:
            pass
        return answer

    def told(self, version: int) -> None:
        while self.hear().get("params", {}).get("version") != version:
            pass

    def end(self) -> None:
        self.ask("shutdown", None)
        self.send("exit", None)
        self.process.communicate(timeout=30)


def _served(text: str, changes: int) -> tuple[float, float]:
    """Milliseconds from start to the answer of `initialize`, and of the quickest change."""
    begun = time.perf_counter()
    editor = _Editor()
    editor.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    start = time.perf_counter() - begun
    editor.send("initialized", {})
    item = {"uri": _URI, "languageId": "vega", "version": 1, "text": text}
    editor.send("textDocument/didOpen", {"textDocument": item})
    editor.told(1)
    place = {"line": text.count("\n") // 2, "character": 0}
    took = []
    for version in range(2, 2 + changes):
        change = {"range": {"start": place, "end": place}, "text": " "}
        begun = time.perf_counter()
        editor.send(
            "textDocument/didChange",
            {"textDocument": {"uri": _URI, "version": version}, "contentChanges": [change]},
        )
        editor.told(version)
        took.append(time.perf_counter() - begun)
    editor.end()
    return start * 1e3, min(took) * 1e3


def _core(text: str, piece: str) -> Timing:
    """One change and its diagnostics in this process."""
    project = Project()
    document = Document(_URI, "/bench/large.vega", text)
    project.put(document)
    known = project.analysis(document.path)
    assert known is not None
    assert diagnose(known) == []
    place = Position(text.count("\n") // 2, 0)
    with Stopwatch(1) as watch:
        document.apply(TextChange(piece, place, place))
        project.forget_derived()
        known = project.analysis(document.path)
        assert known is not None
        diagnose(known)
    return watch.timing


def _colours(text: str) -> Timing:
    project = Project()
    project.put(Document(_URI, "/bench/large.vega", text))
    with Stopwatch(1) as watch:
        known = project.analysis("/bench/large.vega")
        assert known is not None
        colour_words(known)
    return watch.timing


def _ms(figure: Figure | None) -> Figure:
    assert figure is not None
    return Figure(figure.value / 1e3, "ms", None if figure.wall is None else figure.wall / 1e3)


def run(size: Size) -> list[Row]:
    text = program(size.of(1_000, 100))
    lines = text.count("\n")
    best = interleave(
        {
            "good": lambda: _core(text, " "),
            "broken": lambda: _core(text, "let = "),
            "colours": lambda: _colours(text),
        },
        size.repeats,
    )
    served = [_served(text, size.of(40, 3)) for _ in range(size.of(3, 1))]
    start, change = (min(column) for column in zip(*served, strict=True))
    return [
        Row(f"a change to its diagnostics, {lines} lines", Figure(change, "ms", change), goals=(at_most(50, "ms"),)),
        Row("the core's part of it", _ms(best["good"])),
        Row("the same when the change is a mistake", _ms(best["broken"]), note="the whole file is read again"),
        Row("semantic tokens of the file", _ms(best["colours"])),
        Row("from start to `initialize`", Figure(start, "ms", start), note="most of it is pygls' types"),
    ]
