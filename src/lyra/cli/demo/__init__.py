"""`lyra demo`: a supervised team that is killed with SIGKILL and resumed.

`command` plays the scene, `team` is the kernel with its team and the service they call, `board` folds their Events and
draws them, and `report` compares the journal with what the service performed. `web` is `lyra demo --web`.
"""
