"""The host that runs channels: admission, sessions, steering, routing."""
