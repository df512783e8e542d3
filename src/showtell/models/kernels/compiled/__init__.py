"""Loops in C++, compiled for this machine at their first use (README.md)."""
