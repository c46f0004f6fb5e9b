"""Labelled data: one type, readers of files and objects, a cache that processes share, and downloads."""

from fedawe.tasks.data.cache import default_folder
from fedawe.tasks.data.images import add, load
from fedawe.tasks.data.labelled import Data

__all__ = ["Data", "add", "default_folder", "load"]
