"""Several processes of one proxy: their supervisor, and what they ask each other.

Decision 0035 says why.
"""
