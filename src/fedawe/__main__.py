"""`python -m fedawe` is `fedawe`."""

from fedawe.cli.main import main

main()
