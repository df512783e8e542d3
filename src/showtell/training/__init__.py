"""Training: recipes and the one loop."""
