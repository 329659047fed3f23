"""What Fettle ships that others wrote: its licences, and the list of it."""
