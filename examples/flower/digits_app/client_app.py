"""A device: trains the model that it receives on its own digits. It stores nothing between rounds."""

from fedawe.deploy import digits

app = digits.client_app()
