"""The declaration of a node, as its file has it. Start at `sections.load`; `model` is what it gives.

`steps` has the table of what steps can do.
"""

from __future__ import annotations

from lyra.vesper.nodes.model import Node
from lyra.vesper.nodes.sections import load, read_node

__all__ = ["Node", "load", "read_node"]
