"""The CA of a pod: what it may sign, who trusts it, and what becomes of it (spec/compile.md "Output", issue 6 item 2)."""
