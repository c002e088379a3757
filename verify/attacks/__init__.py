"""Attacks on Lyra: races for paths in the sandbox (`swaps`), texts that try to talk an agent into harm (`injection`),
and changes of a store's file that would give a process more rights (`stores`).
"""
