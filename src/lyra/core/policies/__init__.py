"""How to react to failures: Retry, RateLimit, CircuitBreaker, Supervision, and their state machines.

Functions take the time as an argument and never wait. `policy` collects the public names.
"""
