"""Keeps what was said in a session in a JSON file."""
