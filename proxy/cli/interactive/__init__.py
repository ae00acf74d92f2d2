"""What ``privacy-proxy shell`` runs: an interpreter of what is entered, and its prompt."""
