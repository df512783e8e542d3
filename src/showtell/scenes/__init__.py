"""Scenes: small drawn pictures with captions whose truth can be checked."""
