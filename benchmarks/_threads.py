"""Threads as the command line has them; a benchmark imports this first, as OpenMP reads it when torch is loaded."""

from showtell.cores import set_thread_defaults

set_thread_defaults()
