"""Worker processes: where the texts of clients are read, with bounds on time and memory."""
