"""Throw-away in-memory implementations of the Protocols of the library."""
