"""Text to trees with places: YAML, JSON, ``.env``, variables."""
