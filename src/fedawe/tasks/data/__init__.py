"""Images as users have them: readers of the published files, a cache that processes share, downloads."""

from fedawe.tasks.data.cache import default_folder
from fedawe.tasks.data.images import ImageSet, add, load

__all__ = ["ImageSet", "add", "default_folder", "load"]
