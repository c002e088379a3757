"""Nodes at work: in a kernel, in one of five modes. Start at `runtime`; `node_process` is a node with effects."""
