"""The server: stores the models of all clients and asks the available ones; it can be stopped at any time."""

from fedawe.deploy import digits

app = digits.server_app()
