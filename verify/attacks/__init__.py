"""Attacks on Lyra: races for paths in the sandbox (`swaps`) and texts that try to talk an agent into harm
(`injection`).
"""
