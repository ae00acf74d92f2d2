"""Where the data lives, and how a cube is built there."""
