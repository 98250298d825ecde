"""What a channel is, how a message is admitted, and the inbox for steering."""
