"""Federated learning with clients that are available only some of the time.

The public names are listed in `__init__.pyi`. Each is imported when it is first used, because importing PyTorch takes
seconds.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
