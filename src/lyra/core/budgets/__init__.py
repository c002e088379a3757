"""Money and budgets: limits that nest, spending that is reserved before and settled after.

`budget` is the tree of scopes, `early_calls` the rules and the scope of a call that starts before the program reaches
it. Pure state machines; the door decides when they are asked. Start with `budget`.
"""
