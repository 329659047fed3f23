"""What one request may take, on any listener: seconds to arrive, and bytes of its head."""

RECEIVE_S = 30.0
"""Within this time from its first byte, a request must have arrived whole."""
MAX_HEAD_BYTES = 64 * 1024
"""Of its request line and headers, and of whatever else is not its body."""
