"""The proxy at run time: what happens to a runner's request before its provider gets it.

Read in this order: ``core.types`` (the words), ``core.judge`` (every rule of docs/spec/mediation.md
section 4), ``core.turn`` (the sequence), ``dialects`` (the wire), ``turns`` (one turn from its
request to its answer), ``mediator`` (where all of it is put together), ``mitm`` (the host).
"""
