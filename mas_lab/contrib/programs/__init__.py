"""Your own programs as episodes, behind a gateway that speaks OpenAI's interface: `play(program, team, tasks)`.

chat.py, responses.py read a request and write its answer, gateway.py is the server, dispatcher.py answers the calls of
all live episodes, episode.py is one run of a program, and program.py has `play` and the env made of a program.
"""

from mas_lab.contrib.programs.dispatcher import ProgramWarning
from mas_lab.contrib.programs.episode import EpisodeResult
from mas_lab.contrib.programs.program import ProgramEnv, play

__all__ = ["EpisodeResult", "ProgramEnv", "ProgramWarning", "play"]
