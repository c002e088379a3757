"""Attacks on Lyra: races for paths in the sandbox (`swaps`), attempts to write what Lyra or other programs obey (`obeyed`),
and texts that try to talk an agent into harm (`injection`).
"""
