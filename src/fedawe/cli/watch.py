"""`fedawe watch`: Show a run or a deployment while it goes on, on a page that refreshes itself."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Watch:
    """Serve a page on this machine that shows a run or a deployment while it goes on; stop it with Ctrl-C."""

    folder: tyro.conf.Positional[Path]
    """what `fedawe run`, `fedawe flower up` or a Flower strategy with `out` writes to"""
    port: int = 0
    """on which the page is served, on this machine only; 0 takes a free one"""

    def run(self) -> None:
        """Serve until stopped."""
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
