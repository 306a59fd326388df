"""Hand a run over to verl: `verl.export(run, folder)`, whose README.md has the commands.

writer.py writes the folder, settings.py has the run in verl's words, reader.py opens the folder beside verl, and
extensions.py is what verl imports.
"""

from mas_lab.contrib.verl.reader import HandOverError
from mas_lab.contrib.verl.writer import export

__all__ = ["HandOverError", "export"]
