"""`@lyra.parallel`: agent calls that are awaited one after another, made side by side where nobody can tell.

The program runs as it is written. A look ahead follows what it will do next and asks agents early; the program
compares, in its place, and takes an answer only if just this was asked.

    forms        what counts as an agent call in a source
    facts        what the source says of variables: bound for sure, the function's own
    map          a function as the look ahead knows it, its calls and loops numbered
    rewrite      the same function with a word said at each call and loop
    reading      from a function object to its source and back, and why not
    plain        values that can be looked at without running anybody's code
    values       what stands for answers that are still to come
    expressions  expressions computed ahead of their turn
    shadow       the look ahead itself, statement by statement
    whom         whom a call asks, and whether that may happen early
    early        one call
    loops        a `for` as it runs, compared with what was foreseen
    group        what runs: answers in the order of the program, and nothing left of what it did not come to
    kept         what a journal keeps of a call that the program has come to
    rules        the rules of all this, one row each
    draw         one function's calls as its source shows them
    picture      the plan as data, from a file that is not imported

The promise is the one of Vega's automatic parallelism: values, prints, the error raised, the conversations of agents
and what budgets are charged are those of the line-by-line run; only the waiting overlaps.
"""
