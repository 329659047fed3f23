"""What others write may be long, and made to be slow to read."""
