"""Confidence: the chance that a caption is good, fitted on a validation split and kept with the checkpoint."""
