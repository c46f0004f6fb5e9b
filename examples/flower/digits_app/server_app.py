"""The server: holds every client's model, asks whoever is there, and can be killed at any time."""

from fedawe.deploy import digits

app = digits.server_app()
