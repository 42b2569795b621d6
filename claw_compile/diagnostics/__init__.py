"""Diagnostics, and how they are shown."""
