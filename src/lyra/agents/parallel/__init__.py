"""`@lyra.parallel`: agent calls that are awaited one after another are made side by side where that changes no result.

The program runs as it is written. A lookahead follows what it will do next and makes agent calls early. When the
program comes to a call, its target and arguments are compared with those of the early call; the answer is used only if
they are the same.

    source/facts          which expressions are agent calls, which variables are bound for sure, which lists are its own
    source/function_map   a function as the lookahead reads it, its calls and loops numbered
    source/source         from a function object to its source, and back with its calls routed through a CallGroup
    source/overlaps       which calls of one function can overlap, by its source alone
    source/plan           the plan of a whole file, which is not imported
    safe_values           values that can be examined without running a user's code
    pending_values        placeholders for answers that are not there yet
    expressions           expressions evaluated ahead of their turn
    lookahead             statements followed ahead of their turn
    targets               which agent a call asks, and whether that may happen early
    call                  one call; the rules of all this are those of `core.budgets.early_calls`
    group                 the calls of one function at run time, and its `for` loops, compared with the foreseen items

The promise is that of Vega's automatic parallelism: values, prints, the error raised, the conversations of agents and
the charges to budgets are those of the line-by-line run; only the waiting overlaps.
"""
