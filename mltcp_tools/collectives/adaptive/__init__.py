"""All-reduces fitted to the links there are: measured, planned, and run over TCP (AdapCC)."""
