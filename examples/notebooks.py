"""Convert the tutorials to notebooks: python examples/notebooks.py docs/tutorials build/notebooks

A block with a title becomes a cell that writes a file with that name; a block of commands becomes a bash cell.
"""

import re
import sys
from pathlib import Path

import jupytext  # type: ignore[import-untyped]

# Without this header, a page with more commands than Python code would become a bash notebook.
KERNEL = """---
jupyter:
  kernelspec:
    display_name: Python 3
    language: python
    name: python3
---

"""
TITLED = re.compile(r'^```\w+ title="([^"]+)"$', re.MULTILINE)


def main(source: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for page in sorted(source.glob("*.md")):
        text = TITLED.sub(r"```python\n%%writefile \1", page.read_text(encoding="utf-8"))
        notebook = jupytext.reads(KERNEL + text, fmt="md")
        jupytext.write(notebook, out / f"{page.stem}.ipynb")
        print(out / f"{page.stem}.ipynb")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
