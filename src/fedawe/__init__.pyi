from . import tasks as tasks
from .algorithms import F3AST as F3AST
from .algorithms import MIFA as MIFA
from .algorithms import Algorithm as Algorithm
from .algorithms import FedAU as FedAU
from .algorithms import FedAvg as FedAvg
from .algorithms import FedAvgAll as FedAvgAll
from .algorithms import FedAvgKnown as FedAvgKnown
from .algorithms import FedAWE as FedAWE
from .algorithms import FedVARP as FedVARP
from .availability import Cyclic as Cyclic
from .availability import Dynamics as Dynamics
from .availability import InterleavedSine as InterleavedSine
from .availability import Markov as Markov
from .availability import Outages as Outages
from .availability import Sine as Sine
from .availability import Staircase as Staircase
from .availability import Stationary as Stationary
from .availability import Trace as Trace
from .core.errors import Diverged as Diverged
from .core.errors import UserError as UserError
from .core.metric import Metric as Metric
from .core.rng import rng as rng
from .experiments.experiment import Experiment as Experiment
from .experiments.results import Results as Results
from .experiments.results import load as load
from .results.model import load_model as load_model
from .tasks import Quadratic as Quadratic
from .tasks import classification as classification
from .tasks import digits as digits
from .tasks import dirichlet_partition as dirichlet_partition
from .training.local import Local as Local
from .training.local import Rate as Rate
from .training.simulate import Round as Round
from .training.simulate import simulate as simulate

__version__: str
__all__: list[str]
