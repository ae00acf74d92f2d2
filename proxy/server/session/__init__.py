"""One client's session: routing of statements, the protocol's state machine, engine sessions."""
