"""Reads and rewrites the source of `@lyra.parallel` functions.

Owns the static half of the analysis: where the agent calls of a function are, which of them may overlap, and the
function with its calls rewritten. Runs no function. Start with `function_map`; `plan` prints the result for a person.
"""
