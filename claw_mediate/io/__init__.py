"""The only folder that awaits (beside ``mitm``): it asks providers and services, reads agents, writes history."""
