"""Several processes of one proxy: their supervisor, and what they ask each other
(decision 0035).
"""
