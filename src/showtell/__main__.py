"""`python -m showtell` is `showtell`."""

from showtell.cli import main

if __name__ == "__main__":
    main()
