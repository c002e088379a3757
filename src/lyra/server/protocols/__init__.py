"""Open protocols by which agents and front ends of others talk to agents of Lyra.

Start with `routes`, the table of what they ask.
"""
