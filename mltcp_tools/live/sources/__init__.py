"""Sources of knowledge of a job's iterations, and which of them to believe."""
