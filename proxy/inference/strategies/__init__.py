"""What is measured in the place of queries: ``bases``; and which of it, by ``choosing``."""
