"""The certificate authority (CA) of a pod: its names, its files, its status, and what runners trust
(certs/README.md).
"""
