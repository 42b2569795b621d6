"""toolhost.yml: its text, its grammar, and the settings that it gives
(docs/spec/tools-host.md "toolhost.yml").
"""
