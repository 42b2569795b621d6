"""The certificate authority (CA) of a pod: its names, its files, its status.

It also knows what runners trust. See certs/README.md.
"""
