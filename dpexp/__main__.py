"""`python -m dpexp`."""

from dpexp.cli import main

main()
