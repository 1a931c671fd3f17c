"""Collectives measured and compared: ranks in namespaces, jobs that share links."""
