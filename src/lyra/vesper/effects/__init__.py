"""Acts of nodes outside: requests, and how they are performed, logged and replayed.

Start with `request`, the contract between a path and the effects it is given.
"""
