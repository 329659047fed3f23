"""A node's answer to an ask: judged, scored, kept ready for whoever asks."""
