"""How client work is executed: in this process, in several, or on a cluster."""

from fedawe.training.engines.base import Engine, Inline
from fedawe.training.engines.calibrate import best_workers, cores
from fedawe.training.engines.memory import keep_freed_memory
from fedawe.training.engines.processes import Processes, one_thread
from fedawe.training.engines.ray_cluster import RayCluster
from fedawe.training.engines.ray_engine import RayEngine

__all__ = [
    "Engine",
    "Inline",
    "Processes",
    "RayCluster",
    "RayEngine",
    "best_workers",
    "cores",
    "keep_freed_memory",
    "one_thread",
]
