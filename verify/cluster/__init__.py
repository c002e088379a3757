"""Hosts of a cluster as real processes on one machine, to be killed, stopped, held up and measured.

`hosts` starts them and hears what they report, `host_process` is the program that each runs, `programs` has what they
run, `provider` the payments that are counted outside, `vendor` the model that they call, and `soak` the long run that
kills a host again and again.
"""
