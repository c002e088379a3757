"""What has happened, for the API and the pages: rows of the journal, records of calls, runs to step through.

`history` reads the rows, `records` keeps calls and their cost (`past_records`: of the time before the server began),
`call_contents` reads what one call asked and got. `timelines` are runs to step through, `vega_forks` forks of Vega runs
that a server executes. Start with `records` and `timelines`.
"""
