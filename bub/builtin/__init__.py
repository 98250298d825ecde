"""The default plugin; nothing in it is special."""
