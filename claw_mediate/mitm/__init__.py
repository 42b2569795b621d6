"""The host: the only part that imports mitmproxy.

It connects mitmproxy's flows to the mediator.
"""
