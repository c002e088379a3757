"""The examples of tests/vega/documents/001.md, word for word, run on the kernel with the simulated model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lyra import vega
from lyra.vega.checker.types import kind_from_word
from lyra.vega.stdlib.table import LIBRARY

DOCUMENTS = Path(__file__).parents[1] / "documents"
DOCUMENT = DOCUMENTS / "001.md"
PROGRAMS = Path(__file__).parents[2] / "language" / "documents"
BLOCKS = re.findall(r"```vega\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def block(start: str) -> str:
    """The example that holds this text; there is one."""
    blocks = [text for text in BLOCKS if start in text]
    assert len(blocks) == 1, start
    return str(blocks[0])


def printed(source: str, tmp_path: Path, **options: Any) -> list[str]:
    lines: list[str] = []
    options = {"model": "sim/echo", "folder": str(tmp_path), **options}
    vega.run(source, stdout=lines.append, stderr=lambda _: None, **options)
    return lines


def agent(*names: str) -> str:
    return "".join(f'agent {name} {{ model "sim/echo" }}\n' for name in names)


CODER = block("max_attempts 3")


def test_agents(tmp_path):
    """The Coder with its budget, its retries and its tool answers."""
    assert printed(CODER + 'let c = spawn Coder; print(c <- "hello");', tmp_path) == ["hello"]


def test_the_coders_tool_reads_a_file(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("in the file")
    script = tmp_path / "script.yaml"
    script.write_text(
        "replies:\n"
        "  - user: go\n    tool_calls: [{name: read_file, arguments: {path: a.txt}}]\n"
        "  - tool: read_file\n    text: 'it holds: {result}'\n"
    )
    lines = printed(CODER + 'let c = spawn Coder; print(c <- "go");', tmp_path, model=f"sim/script:{script}")
    assert lines == ["it holds: in the file"]


def test_spawning_and_supervision(tmp_path):
    source = agent("Coder") + block("supervised by {") + 'print(coder <- "a"); print(result <- "b");'
    assert printed(source, tmp_path) == ["a", "b"]


def test_message_passing(tmp_path):
    """Sends, a time-out, a budget and a streaming loop, as they stand there."""
    source = agent("Coder") + "let coder = spawn Coder;\n" + block("coder <~") + "print(code);"
    assert printed(source, tmp_path) == ["Write ", "a ", "long ", "story", "Write code"]


def test_automatic_parallelization(tmp_path):
    source = (
        agent("Reviewer", "Summarizer")
        + "let reviewer = spawn Reviewer; let summarizer = spawn Summarizer;\n"
        + 'let code1 = "1"; let code2 = "2"; let code3 = "3";\n'
        + block("let review1")
        + "print(summary);"
    )
    assert printed(source, tmp_path) == ["123"]


def test_explicit_parallel(tmp_path):
    source = (
        agent("A", "B")
        + 'let agent1 = spawn A; let agent2 = spawn B; let msg1 = "one"; let msg2 = "two";\n'
        + block("agent1 <- msg1")
        + "print(a + b);"
    )
    assert printed(source, tmp_path) == ["onetwo"]


def test_budgets(tmp_path):
    source = (
        agent("Coder", "Reviewer") + 'let task = "t";\n' + block("session budget $10.00") + "print(remaining > 0.0);"
    )
    assert printed(source, tmp_path) == ["true"]


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        ("replies: [{text: fine}]", {}, []),
        ("replies: [{error: {kind: bad_request, message: no}}]", {}, ["Agent failed after retries: "]),
        (
            "price: {input_usd_per_mtok: 1000, output_usd_per_mtok: 1000}\nreplies: [{text: x}]",
            {"budget": "$0.0001"},
            ["Out of budget"],
        ),
    ],
)
def test_error_handling(tmp_path, script, options, expected):
    file = tmp_path / "script.yaml"
    file.write_text(script)
    source = agent("Coder") + 'let coder = spawn Coder; let task = "t";\n' + block("FlakeyService")
    lines = printed(source, tmp_path, model=f"sim/script:{file}", **options)
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))


def test_standard_library(tmp_path):
    source = """
        print(budget::used()); print(budget::limit() > 0.0); print(budget::remaining() > 0.0);
        print(process::self() == process::self());
        process::sleep(1ms);
        let span = trace::span("work"); trace::event("begun"); trace::set_attribute("k", 1); span.end();
        file::write("a.txt", "text"); print(file::read("a.txt")); print(file::exists("b.txt"));
        process::exit("normal");
    """
    assert printed(source, tmp_path) == ["0", "true", "true", "true", "text", "false"]


def test_capability_based_tool_security(tmp_path):
    """The tool may read below /project only, and run its two commands only."""
    source = block("allowed_paths") + 'let c = spawn Coder; print(c <- "go");'
    script = tmp_path / "script.yaml"
    script.write_text(
        "replies:\n"
        "  - user: go\n    tool_calls: [{name: read_file, arguments: {path: /etc/hostname}}]\n"
        "  - tool: read_file\n    text: '{result}'\n"
    )
    lines = printed(source, tmp_path, model=f"sim/script:{script}")
    assert lines[0].startswith("CapabilityDenied")


def test_every_example_is_a_language_test_word_for_word():
    programs = [path.read_text() for path in PROGRAMS.glob("*.vega")]
    for document in sorted(DOCUMENTS.glob("*.md")):
        for text in re.findall(r"```vega\n(.*?)```", document.read_text(), re.DOTALL):
            assert any(text in program for program in programs), f"{document.name}: {text}"


@pytest.mark.parametrize(
    "heading",
    [
        "budget::remaining() -> float",
        "budget::used() -> float",
        "budget::limit() -> float",
        "process::self() -> ProcessId",
        "process::exit(reason: str)",
        "process::sleep(duration: duration)",
        "trace::span(name: str) -> Span",
        "trace::event(msg: str)",
        "trace::set_attribute(key: str, value: any)",
        "file::read(path: str) -> str",
        "file::write(path: str, content: str)",
        "file::exists(path: str) -> bool",
        "http::get(url: str) -> Response",
        "http::post(url: str, body: str) -> Response",
    ],
)
def test_the_library_has_the_headings_of_the_document(heading):
    """Names, parameters by name and kind, and results."""
    match = re.fullmatch(r"(\w+)::(\w+)\((.*?)\)(?: -> (\w+))?", heading)
    assert match is not None
    entry = LIBRARY[match[1]][match[2]]
    parameters = [tuple(part.split(": ")) for part in match[3].split(", ") if part]
    assert [(name, kind) for name, kind in entry.parameters] == parameters
    assert kind_from_word(entry.result) == kind_from_word(match[4] or "null")
