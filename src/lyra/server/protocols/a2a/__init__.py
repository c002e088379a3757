"""A2A: agents of Lyra for agents and programs of others, by the Agent2Agent protocol, versions 1.0 and 0.3.

`routes` has the paths, reads a call and writes its answer, also in the names and shapes of version 0.3; start there.
`methods` is what can be asked, and the description of an agent. `tasks` has the tasks of one server, a process each;
`live_task` keeps a task's record, asks its person, and tells its readers what happens. `tasks` also tells other
servers, `errors` has the codes.
"""
