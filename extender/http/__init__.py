"""What makes the extender fast, and nothing else: connections and replies."""
