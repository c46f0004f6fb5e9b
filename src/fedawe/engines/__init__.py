"""How client work is executed: in this process, or in several."""

from fedawe.engines.base import Engine, Inline
from fedawe.engines.calibrate import best_workers, better_stacked, cores
from fedawe.engines.memory import keep_freed_memory
from fedawe.engines.processes import Processes

__all__ = ["Engine", "Inline", "Processes", "best_workers", "better_stacked", "cores", "keep_freed_memory"]
