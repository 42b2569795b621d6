"""The credential-leak scan: what a container is given, and what in it holds a credential that no agent may have."""
