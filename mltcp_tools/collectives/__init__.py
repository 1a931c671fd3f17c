"""Collectives that send less: sums in the network, without what is zero."""
