"""A2A: agents of Lyra for agents and programs of others, by the Agent2Agent protocol, versions 1.0 and 0.3.

`routes` has the paths; start there. `requests` reads a call and writes its answer, `methods` is what can be asked,
`compat` the names and shapes of version 0.3. `tasks` has the tasks of one server: each is a process (`programs`) with a
record (`record`), and `live_task` tells its readers what happens. `questions` is where a person is asked, `push` tells
other servers, `card` describes an agent, `errors` has the codes.
"""
