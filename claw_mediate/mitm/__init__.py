"""All that knows mitmproxy: options, hooks, the door (streaming answers) and the
guard (nothing leaves undecided).
"""
