"""Services: named handlers with a capacity and a health, and the dispatch of requests to them.

`registry` is the entry; `service` asks services how they are, `service` dispatches model requests.
"""
