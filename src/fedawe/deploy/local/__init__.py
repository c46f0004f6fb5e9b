"""A federation on this machine, for trying out: a SuperLink and SuperNodes as processes, keys, and an app folder."""
