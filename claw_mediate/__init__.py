"""The tool loop at run time (docs/spec/mediation.md): what happens to a runner's request between
the runner and its provider.

Read in this order: ``model`` and ``talk`` (the words), ``judge`` (every rule), ``turn`` (the
sequence), ``dialects`` (the wire), ``io`` (the only folder that awaits, beside ``mitm``),
``mediator`` (where all of it is put together).
"""
