"""What makes the extender fast, and nothing else: connections, replies, and what is used again."""
