"""`fedawe theory`: Compute the quantities of the paper's theory for given probabilities or a trace."""

import json
from dataclasses import dataclass

from fedawe.experiments.flags import File, Numbers, Whole


@dataclass(frozen=True)
class Theory:
    """Print mixing, staleness, conditions on learning rates, bounds and costs, from the paper and tighter ones."""

    p: Numbers = (0.1,)
    """base probabilities: one for all clients or one for each (default: 0.1)"""
    clients: Whole = None
    """number of clients (default: as many as p has, or 100)"""
    dynamics: str = "stationary"
    """stationary, staircase, sine, interleaved, with options as in sine:gamma=0.2,period=40"""
    trace: File = None
    """use the rates of a trace (.npz or .csv) instead of p, and measure its staleness and its rho"""
    rounds: Whole = None
    """T, the number of rounds (default: 2000, or those of the trace)"""
    steps: int = 10
    """s, the number of local steps"""
    smoothness: float = 1.0
    """L, the Lipschitz constant of the gradients"""
    beta: float = 0.0
    """beta of Assumption 4: how far clients' gradients may differ from their mean, relative to the norm of the mean"""
    sigma: float = 1.0
    """standard deviation of stochastic gradients"""
    zeta: float = 1.0
    """zeta of Assumption 4: how far clients' gradients may differ in addition, independent of the norm of the mean"""
    gap: float = 1.0
    """F(x0) - F*, the initial loss minus the least loss"""
    parameters: int = 273_706
    """d, the number of parameters, for memory and bytes; the default is that of the paper's network for SVHN"""
    json: bool = False
    """print JSON and nothing else"""

    def run(self) -> None:
        """Compute the quantities, and print them."""
        from rich.console import Console

        from fedawe.audit.as_json import plain
        from fedawe.audit.theorems import numbers
        from fedawe.audit.theory_text import tables
        from fedawe.availability.dynamics import DYNAMICS
        from fedawe.experiments import names

        replaced = {flag: getattr(Theory, flag) for flag in ("p", "clients", "dynamics")}
        told = numbers(self, replaced, lambda text: names.parse(text, "availability", DYNAMICS).build())
        if self.json:
            print(json.dumps(plain(told), allow_nan=False))
            return
        console = Console(highlight=False, markup=False)
        for table in tables(told):
            console.print(table)
            console.print()


VERB = Theory
