"""The JSON Schema of a pod file, for editors: Compose's own, and ``x-claw`` (decision 0022)."""
