"""State that several processes share: groups with a blackboard, memories, the taint of text from outside
(with withdrawn questions and the acts of people).

The modules are independent subsystems; start with `groups`.
"""
