"""Files, and the one phase that writes them."""
