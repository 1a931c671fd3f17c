"""What is known of a job's iterations: the sources there are, and which of them to believe."""
