"""The protocols of model APIs, each a folder of pure functions over its JSON.

They read views, keep the raw bytes, and edit by splicing. Each folder gives one
``DIALECT``, a value of ``base.Dialect``: ``request`` has the runner's requests, ``response`` the
provider's responses, ``stream`` the streams for runners. The rules are in ``core.judge``: a dialect
decides nothing.
"""
