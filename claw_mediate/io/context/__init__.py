"""What the proxy adds to a system prompt, from the world (spec/mediation.md section 8): feeds, memories, the time."""
