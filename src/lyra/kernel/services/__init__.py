"""Services: named handlers with a capacity and a health, and the dispatch of requests to them.

`registry` is the entry; `health_checks` asks services how they are, `inference` dispatches model requests.
"""
