"""The output: the tree of files, and the one phase that writes it."""
