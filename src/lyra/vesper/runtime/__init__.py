"""Nodes at work: in a kernel, in one of five modes."""
