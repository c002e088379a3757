"""`@lyra.parallel`: agent calls that are awaited one after another, made side by side where nobody can tell.

    forms       what counts as an agent call, and what is plain computing
    stretches   the function's statements in stretches whose calls may start early
    rewrite     the same function with those calls started early and awaited at their own places
    reading     from a function object to its source, and why not
    group       what runs: starts calls as early as they may, gives their answers in the order of the program
    kept        what a journal keeps of a call that the program has come to
    rules       the rules of all this, one row each
    picture     the plan as data, from a file that is not imported

The promise is the one of Vega's automatic parallelism: values, prints, the error raised, the conversations of agents
and what budgets are charged are those of the line-by-line run; only the waiting overlaps.
"""
