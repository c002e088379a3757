"""`lyra demo`: a supervised team that is killed with SIGKILL and resumed.

`command` plays and shows the scene, `team` is the kernel with its team and the service they call, and `report` compares
the journal with what the service performed. `web` is `lyra demo --web`.
"""
