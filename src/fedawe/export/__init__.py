"""Records and models for the tools people already have: pandas, CSV, TensorBoard, PyTorch."""

from fedawe.export.events import write_tensorboard
from fedawe.export.frame import load, write_csv
from fedawe.export.model import load_model

__all__ = ["load", "load_model", "write_csv", "write_tensorboard"]
