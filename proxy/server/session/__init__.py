"""One client's session: where each statement goes, what the engine is asked, what is told."""
