"""State that several processes share: groups with a blackboard, memories, and the taint of text from outside.

The three modules are independent subsystems; start with `groups`.
"""
