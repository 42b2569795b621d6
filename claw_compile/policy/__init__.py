"""What each agent has, and may not have."""
