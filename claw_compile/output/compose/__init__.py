"""compose.generated.yml."""
