"""Many hosts at once: what their agents publish, and taking all of MLTCP off them."""
