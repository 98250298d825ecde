"""Doubles and contract suites for programs that use bub. Nothing in bub imports this."""
