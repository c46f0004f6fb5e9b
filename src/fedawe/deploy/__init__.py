"""Deployment on real devices with Flower: a strategy and apps that run any algorithm.

`FlowerStrategy(fedawe.FedAWE(), clients=10)` is a Flower strategy; `server_app` and `client_app` make complete apps.
"""

import warnings

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by libraries that Flower imports
        import flwr  # noqa: F401
except ImportError as error:
    from fedawe.core.errors import UserError

    raise UserError("fedawe.deploy needs Flower; install it with: pip install 'fedawe[flower]'") from error

from fedawe.deploy.about import About
from fedawe.deploy.apps import Job, client_app, client_app_of, server_app
from fedawe.deploy.rules import Rules
from fedawe.deploy.strategy import FlowerStrategy

__all__ = ["About", "FlowerStrategy", "Job", "Rules", "client_app", "client_app_of", "server_app"]
