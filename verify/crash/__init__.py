"""Kills real processes with SIGKILL, opens their stores again and compares the results with an undisturbed run.

`workload` is what is killed, `crash` the harness; `tree` and `pipeline` do the same for supervised trees and
pipelines, `vega` for durable runs of programs.
"""
