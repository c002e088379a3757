"""Example nodes on the Python path and on the direct path: equal outcomes for many generated inputs.

The nodes are those of `examples/nodes`, of the tutorial and the documents' payment handler; one with effects acts on
simulated effects, and the requests of both paths are compared. 110 000 clean comparisons are what the last gate of a
node's modes asks for. `run` gives, for each node, how many inputs were compared, how many differed and the CPU time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lyra.vesper.check.judge import program_of
from lyra.vesper.evidence import differential
from lyra.vesper.nodes.sections import read_node

__all__ = ["NodeComparison", "example_nodes", "run"]

ROOT: Final = Path(__file__).parents[2]
_TUTORIAL: Final = re.compile(r"```yaml\n(node_id: .*?)```", re.DOTALL)


class NodeComparison(NamedTuple):
    node: str
    compared: int
    divergences: int
    cpu_s: float
    first: str  # the first divergence, in words

    @property
    def per_second(self) -> float:
        return self.compared / self.cpu_s if self.cpu_s else 0.0


def example_nodes() -> Iterator[tuple[str, str]]:
    """The name and text of each node that is shown to users."""
    for path in (*sorted((ROOT / "examples" / "nodes").glob("*.vsp")), ROOT / "tests/vesper/files/payment_handler.vsp"):
        if path.is_file():
            yield path.stem, path.read_text()
    for number, match in enumerate(_TUTORIAL.finditer((ROOT / "docs/tutorial/vesper.md").read_text())):
        yield f"tutorial_{number}", match[1]


def run(count: int, seed: int, *, progress: Callable[[int, int], None] = lambda *_: None) -> list[NodeComparison]:
    """Compare the paths of each node on `count` inputs."""
    nodes = list(example_nodes())
    comparisons = []
    for number, (name, text) in enumerate(nodes, start=1):
        node, issues = read_node(text, name)
        assert node is not None, issues
        began = time.process_time()
        report = differential.test(program_of(node), count, seed=seed)
        cpu_s = time.process_time() - began
        first = str(report.kept[0]) if report.kept else ""
        comparisons.append(NodeComparison(name, report.compared, report.divergences, cpu_s, first))
        progress(number, len(nodes))
    return comparisons
