"""Where conversations and turns are kept, and how: the proxy writes it, and ``claw state`` tells of it."""
