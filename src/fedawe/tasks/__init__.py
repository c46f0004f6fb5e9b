"""What can be learned: quadratics, the bundled digits, a user's own npz, a user's own module."""

from fedawe.tasks.augment import Augment
from fedawe.tasks.base import Task, Update
from fedawe.tasks.classification import Classification, classification, network_for
from fedawe.tasks.convnet import ConvNet
from fedawe.tasks.data.labelled import Data, digits, from_npz
from fedawe.tasks.layout import Layout
from fedawe.tasks.module import ModuleNetwork
from fedawe.tasks.networks import Dense, Network
from fedawe.tasks.partition import dirichlet_partition, label_frequencies
from fedawe.tasks.quadratic import Quadratic

__all__ = [
    "Augment",
    "Classification",
    "ConvNet",
    "Data",
    "Dense",
    "Layout",
    "ModuleNetwork",
    "Network",
    "Quadratic",
    "Task",
    "Update",
    "classification",
    "digits",
    "dirichlet_partition",
    "from_npz",
    "label_frequencies",
    "network_for",
]
