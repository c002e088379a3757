"""Checks a syntax tree before it runs: names, calls, kinds of values, and the settings of agents and tools.

Start with `checker`. It collects mistakes with positions and never changes the tree.
"""
