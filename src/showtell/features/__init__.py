"""Features: what the encoders see in an image."""
