"""Controlled experiments on live jobs: the same jobs with and without MLTCP, in random order."""
