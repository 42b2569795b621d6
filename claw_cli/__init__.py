"""The command line: one file a verb; each parses, calls, prints. No rule of the system lives here."""
