"""Nodes at work: in a kernel, in one of five modes. Start at `runtime`; `recording` also has the process of a node."""
