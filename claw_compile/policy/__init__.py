"""The policy of each agent: its tools, models, networks, and what it must not hold."""
