"""Scores: sufficient statistics per caption, then a corpus number."""
