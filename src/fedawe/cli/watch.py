"""`fedawe watch`: Show a run or a deployment in progress on a page that refreshes itself."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Watch:
    """Serve a page on this machine that shows a run or a deployment in progress; stop it with Ctrl-C."""

    folder: tyro.conf.Positional[Path]
    """the folder to which `fedawe run`, `fedawe flower up` or a Flower strategy with `out` writes"""
    port: int = 0
    """port of the page, which only this machine can reach; 0: any free one"""

    def run(self) -> None:
        """Serve the page until Ctrl-C."""
        from fedawe.report.watch import server

        serving = server(self.folder, self.port)
        print(f"http://127.0.0.1:{serving.server_address[1]}/", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            print("stopped")
        finally:
            serving.server_close()


VERB = Watch
