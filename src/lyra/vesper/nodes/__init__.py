"""The declaration of a node, as its file has it. Start at `loader.load`; `model` is what it gives, `operations` the
table of what steps can do.
"""

from __future__ import annotations

from lyra.vesper.nodes.loader import load, read_node
from lyra.vesper.nodes.model import Node

__all__ = ["Node", "load", "read_node"]
