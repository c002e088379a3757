"""Attacks on Lyra: races for paths in the sandbox (`swaps`), texts that try to talk an agent into harm (`injection`),
repositories whose own files ask for too much (`project_files`), commands that try to reach other hosts (`egress`),
changes of a store's file that would give a process more rights (`stores`), and all of these through the faces of Sage
(`sage`).
"""
