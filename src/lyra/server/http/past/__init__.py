"""What has happened, for the API and the pages: rows of the journal, records of calls, runs to step through.

`history` reads the rows. `records` keeps calls and their cost, also of the time before the server began. `timelines`
are runs to step through, and forks of Vega runs that a server executes. Start with `records` and `timelines`.
"""
