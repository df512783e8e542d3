"""Captioners behind HTTP: a bounded queue that makes batches, an API, and the routes of the page."""
