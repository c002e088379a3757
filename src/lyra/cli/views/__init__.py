"""Commands that show what runs: `ps`, `tree`, `trace`, `cost`, `events`, `top`, of a store or of a server.

`source` gives the rows of either, `folded` what they tell; each command has a module of its own. They only read, also
beside a running kernel.
"""
