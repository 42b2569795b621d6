"""The tree of a pod file as values."""
