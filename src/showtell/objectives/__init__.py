"""Objectives: what is minimised; they know no model."""
