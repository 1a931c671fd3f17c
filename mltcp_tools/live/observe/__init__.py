"""The iterations of attached jobs, as they are read, shown and recorded."""
