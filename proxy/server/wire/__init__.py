"""PostgreSQL's protocol as bytes: frames, messages, replies, and what carries them."""
