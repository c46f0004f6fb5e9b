"""`fedawe check`: Verify the checksums of all files in the folder of an experiment or of a deployment."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from fedawe.core.errors import UserError


@dataclass(frozen=True)
class CheckCommand:
    """Verify the checksums of all files in a folder of experiments or deployments; exit code 2 if one fails."""

    folder: Positional[Path]
    """a folder that `fedawe run` or a deployment wrote, or a folder of such folders"""

    def run(self) -> None:
        """Print a line for every problem; exit code 2 if there is one."""
        from fedawe.experiments.check import problems

        found = list(problems(self.folder))
        for line in found:
            print(line)
        if found:
            raise UserError(f"{self.folder}: {len(found)} file{'s are' if len(found) > 1 else ' is'} not as written")
        print(f"{self.folder}: everything is as it was written")


VERB = CheckCommand
