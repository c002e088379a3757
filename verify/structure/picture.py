"""Draws docs/images/architecture.svg: the parts of Lyra in their layers, from the import contracts and the folders.

Each part is a box in the row of its layer. Inside it, the layers of the part's own contract are chips, top layer first;
a part without a contract has its folders and files in plain text. The last line of a box names the parts that its files
import; all of them are below it.
`python -m verify structure --svg` writes the file, and a test compares it.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final, NamedTuple

from lyra.core.svg_graph import Canvas
from verify.structure.layers import PROJECT, Contract, read_contracts
from verify.structure.source_tree import SourceTree

__all__ = ["PATH", "SUBJECTS", "draw", "write"]

PATH: Final = Path(__file__).parents[2] / "docs" / "images" / "architecture.svg"

# What each part is, in a few words.
SUBJECTS: Final = {
    "cli": "the commands lyra, sage, vega and vesper",
    "testing": "for tests of users: clock, loop, mock server",
    "server": "gRPC, HTTP, dashboard, protocols, gateway",
    "cluster": "many machines: hosts, shards, take-over",
    "sage": "the code agent",
    "vega": "the language",
    "vesper": "verified nodes",
    "mcp": "tools of other programs",
    "a2a": "agents of others",
    "agents": "models and tools in turn",
    "kernel": "processes, effects, journal",
    "models": "one client, many providers",
    "tools": "what an agent can do",
    "observe": "folds over Events",
    "store": "durable rows",
    "sandbox": "commands kept inside",
    "lsp": "the protocol of editors",
    "config": "one Config from many sources",
    "core": "values and pure state machines; no I/O",
    "errors": "one tree of errors",
}

_WIDTH: Final = 1080
_MARGIN: Final = 28
_TOP: Final = 96  # of the first row
_GAP: Final = 14  # between boxes
_ROW_GAP: Final = 18
_HEAD: Final = 50  # of a box: its name and its subject
_LINE: Final = 26  # a line of chips, with the gap below it
_TEXT_LINE: Final = 15
_CHIP_HEIGHT: Final = 20
_CHIP_GAP: Final = 7
_PADDING: Final = 14
_CHARACTER: Final = 6.6  # of small text
_SHARE_MIN: Final = 0.19  # of the width of a row
_STYLE: Final = """\
.title { font-size: 19px; } .legend, .subject, .plain { font-size: 11.5px; fill: #5b6675; }
.uses { font-size: 11px; font-style: italic; fill: #7a8594; }
.name { font-size: 15px; font-weight: 600; } .chip { font-size: 11.5px; }
.blue { fill: #f6f8fc; stroke: #8fa3c4; } .blue-chip { fill: #dfe8f8; stroke: none; }
.sand { fill: #fdf8ef; stroke: #d6b37a; } .sand-chip { fill: #f7e6c8; stroke: none; }
.green { fill: #f4faf2; stroke: #93b886; } .green-chip { fill: #dbecd3; stroke: none; }
"""
_COLOURS: Final = ("sand", "blue", "green")  # of rows, in turn


class _Box(NamedTuple):
    """One part, before it is placed: lines of chips, or of plain text where the part has no layers of its own."""

    name: str
    width: float
    chip_lines: list[list[str]]
    text_lines: list[str]
    uses_lines: list[str]

    @property
    def height(self) -> float:
        text_lines = len(self.text_lines) + len(self.uses_lines)
        return _HEAD + _LINE * len(self.chip_lines) + _TEXT_LINE * text_lines + _PADDING + 2


def write(path: Path = PATH) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(SourceTree()), encoding="utf-8")
    return path


def draw(tree: SourceTree, project: Path = PROJECT) -> str:
    """Return the picture, a whole SVG document."""
    root, contracts = tree.root, read_contracts(project)
    top = contracts[root.name]
    uses = _uses(tree, top)
    canvas = Canvas()
    canvas.text(_WIDTH / 2, 34, "The parts of Lyra and their layers", "title")
    canvas.text(_WIDTH / 2, 56, "A part imports only parts below it. Inside a part, a layer imports only", "legend")
    canvas.text(_WIDTH / 2, 71, "the layers after it; names with a slash are folders.", "legend")
    y = float(_TOP)
    rows = [[name for name in row if f"{root.name}.{name}" in tree.modules] for row in top.layers]
    for number, names in enumerate(row for row in rows if row):
        colour = _COLOURS[number % len(_COLOURS)]
        boxes = _boxes(names, tree, contracts, uses, root.name)
        x = float(_MARGIN)
        height = max(box.height for box in boxes)
        for box in boxes:
            _draw_box(canvas, box, x, y, height, colour)
            x += box.width + _GAP
        y += height + _ROW_GAP
    return canvas.document("The parts of Lyra and their layers", _WIDTH, y - _ROW_GAP + _MARGIN, _STYLE)


def _uses(tree: SourceTree, top: Contract) -> dict[str, list[str]]:
    """For each part the parts that its files import, highest layer first."""
    order = [name for row in top.layers for name in row]
    targets: dict[str, set[str]] = {name: set() for name in order}
    for edge in tree.imports:
        source, target = top.row_of(edge.source), top.row_of(edge.target)
        if source and target and source[1] != target[1]:
            targets[source[1]].add(target[1])
    return {name: [other for other in order if other in targets[name]] for name in order}


def _boxes(
    names: list[str], tree: SourceTree, contracts: dict[str, Contract], uses: dict[str, list[str]], package: str
) -> list[_Box]:
    """The parts of one row, which share its width by the length of what is in them."""
    layers = {name: _layers(f"{package}.{name}", tree, contracts) for name in names}
    lengths = {name: sum(len(layer) + 4 for layer in layers[name]) or 1 for name in names}
    shares = {name: max(lengths[name] / sum(lengths.values()), _SHARE_MIN) for name in names}
    room = _WIDTH - 2 * _MARGIN - _GAP * (len(names) - 1)
    boxes = []
    for name in names:
        width = room * shares[name] / sum(shares.values())
        inside = width - 2 * _PADDING
        length_max = int(inside / (_CHARACTER - 0.9))
        sentence = f"imports {', '.join(uses[name])}" if uses[name] else "imports no other part"
        has_layers = f"{package}.{name}" in contracts
        boxes.append(
            _Box(
                name,
                width,
                _flow(layers[name], inside) if has_layers else [],
                [] if has_layers else textwrap.wrap(" · ".join(layers[name]).replace(" ·", "\u00a0·"), length_max),
                textwrap.wrap(sentence, length_max),
            )
        )
    return boxes


def _layers(part: str, tree: SourceTree, contracts: dict[str, Contract]) -> list[str]:
    """What is inside a part: the rows of its contract, or its folders and then its files."""
    members = sorted({name.split(".")[2] for name in tree.modules if name.startswith(f"{part}.")})
    folders = [name for name in members if tree.modules[f"{part}.{name}"].is_folder]
    marked = {name: f"{name}/" if name in folders else name for name in [*folders, *members]}
    if part in contracts:
        rows = [[marked[name] for name in row if name in marked] for row in contracts[part].layers]
        return [" · ".join(row) for row in rows if row]
    return list(marked.values())


def _flow(chips: list[str], room: float) -> list[list[str]]:
    """Chips in lines that are not wider than the room; a layer that is wider alone is cut into its members."""
    lines: list[list[str]] = [[]]
    for layer in chips:
        members = [layer] if _chip_width(layer) <= room else layer.split(" · ")
        for chip in members:
            if lines[-1] and sum(_chip_width(other) + _CHIP_GAP for other in lines[-1]) + _chip_width(chip) > room:
                lines.append([])
            lines[-1].append(chip)
    return lines


def _chip_width(chip: str) -> float:
    return len(chip) * _CHARACTER + 14


def _draw_box(canvas: Canvas, box: _Box, x: float, y: float, height: float, colour: str) -> None:
    middle = x + box.width / 2
    canvas.box(x, y, box.width, height, colour)
    canvas.text(middle, y + 24, box.name, "name")
    canvas.text(middle, y + 41, SUBJECTS[box.name], "subject")
    line_y = y + _HEAD
    for chips in box.chip_lines:
        chip_x = middle - (sum(_chip_width(chip) + _CHIP_GAP for chip in chips) - _CHIP_GAP) / 2
        for chip in chips:
            width = _chip_width(chip)
            canvas.box(chip_x, line_y, width, _CHIP_HEIGHT, f"{colour}-chip", shape="round")
            canvas.text(chip_x + width / 2, line_y + 14, chip, "chip")
            chip_x += width + _CHIP_GAP
        line_y += _LINE
    for line in box.text_lines:
        canvas.text(middle, line_y + 11, line, "plain")
        line_y += _TEXT_LINE
    uses_y = y + height - _PADDING - _TEXT_LINE * (len(box.uses_lines) - 1)
    for line in box.uses_lines:
        canvas.text(middle, uses_y, line, "uses")
        uses_y += _TEXT_LINE
