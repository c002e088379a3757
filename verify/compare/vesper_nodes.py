"""Example nodes on the Python path and on the direct path: equal outcomes for many generated inputs.

The nodes are those of `examples/nodes`, of the tutorial and the documents' payment handler; one with effects acts on
simulated effects, and the requests of both paths are compared. 110 000 accepted inputs without a difference are what
the last gate of a node's modes asks for. `run` gives, for each node, how many inputs were compared, accepted and
succeeded, how many differed, what was not reached and the CPU time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lyra.vesper.evidence import differential
from lyra.vesper.nodes.sections import read_node

__all__ = ["NodeComparison", "example_nodes", "run"]

ROOT: Final = Path(__file__).parents[2]
SUCCEEDING_MIN: Final = 0.15  # of the inputs that are compared
TRIED_FOR_EACH: Final = 6  # inputs at most, for each that is to be accepted
_TUTORIAL: Final = re.compile(r"```yaml\n(node_id: .*?)```", re.DOTALL)


class NodeComparison(NamedTuple):
    node: str
    compared: int
    accepted: int  # distinct inputs past the entry checks
    successes: int  # of them, those with which the node succeeded
    unreached: tuple[str, ...]  # steps, branches and declared errors
    divergences: int
    cpu_s: float
    first: str  # the first divergence, in words

    @property
    def per_second(self) -> float:
        return self.accepted / self.cpu_s if self.cpu_s else 0.0

    @property
    def problem(self) -> str:
        """What is wrong, "" where nothing is."""
        if self.divergences:
            return f"{self.divergences} divergences, first {self.first}"
        if self.unreached:
            return f"not reached: {', '.join(self.unreached)}"
        share = self.successes / self.compared if self.compared else 0.0
        return "" if share >= SUCCEEDING_MIN else f"the node succeeded with {share:.0%} of its inputs only"


def example_nodes() -> Iterator[tuple[str, str]]:
    """The name and text of each node that is shown to users."""
    for path in (*sorted((ROOT / "examples" / "nodes").glob("*.vsp")), ROOT / "tests/vesper/files/payment_handler.vsp"):
        if path.is_file():
            yield path.stem, path.read_text()
    for number, match in enumerate(_TUTORIAL.finditer((ROOT / "docs/tutorial/vesper.md").read_text())):
        yield f"tutorial_{number}", match[1]


def run(count: int, seed: int, *, progress: Callable[[int, int], None] = lambda *_: None) -> list[NodeComparison]:
    """Compare the paths of each node until `count` distinct inputs were accepted, or all of a node that has few."""
    nodes = list(example_nodes())
    comparisons = []
    for number, (name, text) in enumerate(nodes, start=1):
        node, issues = read_node(text, name)
        assert node is not None, issues
        began = time.process_time()
        report = differential.test_node(node, TRIED_FOR_EACH * count, seed, accepted=count)
        cpu_s = time.process_time() - began
        first = str(report.kept[0]) if report.kept else ""
        counts = report.counts
        figures = (report.compared, counts.accepted, counts.successes, report.unreached, report.divergences)
        comparisons.append(NodeComparison(name, *figures, cpu_s, first))
        progress(number, len(nodes))
    return comparisons
