"""Grounding: whether attention lies on the objects that are named, and which words name objects that are not there."""
