"""What a statement's text says, without a session: pure functions, which workers run."""
