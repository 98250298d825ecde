"""The framework: plugins, one turn, and the resources behind it."""
