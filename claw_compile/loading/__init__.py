"""The one phase that reads the disk."""
