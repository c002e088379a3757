"""The door: the only way an effect leaves a process.

`door` lists the steps in order (replay, grant, budget, gates, journal, run, settle), `gates` holds the rate limits and
circuit breakers that processes share, and the declared effects.
"""
