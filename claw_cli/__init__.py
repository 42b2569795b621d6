"""The command line: one file a verb.

Each parses, calls and prints; no rule of the system stands here.
"""
