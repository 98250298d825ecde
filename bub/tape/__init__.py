"""What is saved: entries, stores, contexts and tapes."""
