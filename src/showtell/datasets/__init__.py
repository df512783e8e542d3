"""Datasets: every source becomes the same records."""
