"""Decoding: every walk over time, for any decoder."""
