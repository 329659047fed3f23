"""A long run outside CI: Fettle as shipped, beside normal work, while all else fails or attacks."""
