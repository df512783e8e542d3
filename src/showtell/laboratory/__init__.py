"""The laboratory behind `showtell lab`: all searches for one photo side by side."""

from showtell.laboratory.page import write_page
from showtell.laboratory.searches import SEARCHES, Trial, try_searches

__all__ = ["SEARCHES", "Trial", "try_searches", "write_page"]
