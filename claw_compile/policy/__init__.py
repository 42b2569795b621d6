"""Policy: what each agent may do, from grants to networks, and what is refused because of it.

The contract's ``Policy``, the limits of one turn, is a part of this.
"""
