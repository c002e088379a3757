"""One turn of an agent: model and tools in alternation until there is an answer.

`loop` is the program; each other module is one step of it: the context window, the model call, the admission and
approval of tool calls, the calls themselves. State that outlives a turn is in `lyra.agents.session`.
"""
