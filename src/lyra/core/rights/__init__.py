"""Capabilities and grants: what a process may do, and how a right is narrowed when it is passed on.

`capability` has the verbs and the decision, `scope` reads the part behind the colon and compares patterns.
"""
