"""Experiment trackers that show runs in progress: MLflow, TensorBoard, Weights & Biases, or your own."""

from fedawe.trackers.base import TrackedRun, Tracker
from fedawe.trackers.mlflow import MLflow
from fedawe.trackers.tensorboard import TensorBoard
from fedawe.trackers.wandb import WandB

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "TrackedRun", "Tracker", "WandB"]

TRACKERS: dict[str, type[Tracker]] = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": WandB}
