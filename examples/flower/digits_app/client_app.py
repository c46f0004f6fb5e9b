"""A device: trains whatever model it is sent on its own digits, and keeps nothing."""

from fedawe.deploy import digits

app = digits.client_app()
