"""Whole clusters in virtual time: jobs on links whose shares depend on congestion control, the
schedulers that place and scale jobs, and what each gains."""
