"""Learning problems: quadratics, bundled data, a user's own data in many formats, and a user's own module."""

from fedawe.tasks.augment import Augment
from fedawe.tasks.base import Task, Update
from fedawe.tasks.classification import Classification, classification
from fedawe.tasks.data.arrays import from_arrays, from_npz
from fedawe.tasks.data.labelled import Data, digits
from fedawe.tasks.data.leaf import from_leaf
from fedawe.tasks.data.readers import from_huggingface, from_torch
from fedawe.tasks.data.tables import from_table
from fedawe.tasks.data.text import characters
from fedawe.tasks.layout import Layout
from fedawe.tasks.models import network_for
from fedawe.tasks.module import ModuleNetwork
from fedawe.tasks.partition import (
    dirichlet_partition,
    hold_out,
    iid_partition,
    label_frequencies,
    natural_partition,
    partition_of,
)
from fedawe.tasks.quadratic import Quadratic
from fedawe.tasks.synthetic import Synthetic

__all__ = [
    "Augment",
    "Classification",
    "Data",
    "Layout",
    "ModuleNetwork",
    "Quadratic",
    "Synthetic",
    "Task",
    "Update",
    "characters",
    "classification",
    "digits",
    "dirichlet_partition",
    "from_arrays",
    "from_huggingface",
    "from_leaf",
    "from_npz",
    "from_table",
    "from_torch",
    "hold_out",
    "iid_partition",
    "label_frequencies",
    "natural_partition",
    "network_for",
    "partition_of",
]
