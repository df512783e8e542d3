"""Reports: every HTML page and figure, each one file that loads nothing from outside."""
