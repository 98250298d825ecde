"""The hooks: their Protocols, how they are implemented, registered, ordered and called."""
