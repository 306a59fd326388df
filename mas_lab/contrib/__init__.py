"""What few people need, beside the core: other trainers, programs, foreign runs, younger methods and more tasks.

    tinker/       back end whose weights are behind a Tinker server
    verl/         hand a run over to verl, or pack it into one zip
    programs/     your own programs as episodes, behind a gateway that speaks OpenAI's interface
    tasks/        tasks with tools, and envs of PettingZoo, TextArena and reasoning-gym
    critics.py    credits that learn a value (IAC, MAAC)
    preferences.py    the credit of MADPO

Public names are reached as `lab.*` like all others. The core never imports this package: registries name its entries,
which are imported at their first use.
"""
