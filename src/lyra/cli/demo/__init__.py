"""`lyra demo`: a supervised team that is killed with SIGKILL and resumed.

`command` plays the scene, `team` and `service` are the two processes in it, `board` folds their Events, `view` draws
the board and `report` compares the journal with what the service performed.
"""
