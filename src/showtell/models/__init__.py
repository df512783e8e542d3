"""Models: one file per paper, on one contract."""
