"""A federation on this machine, for trials: a SuperLink and SuperNodes as processes, keys, and an app folder."""
