"""What few people need, beside the core: other trainers, programs, foreign runs, younger methods and more tasks.

    tinker/       back end whose weights are behind a Tinker server
    verl/         hand a run over to verl, or pack it into one zip
    programs/     your own programs as episodes, behind a gateway that speaks OpenAI's interface
    teams/        save a team as a folder to share, and load one
    tasks/        tasks with tools, and envs of PettingZoo, TextArena and reasoning-gym
    foreign/      check runs and teams that somebody else made, in a child process
    critics.py    credits that learn a value (IAC, MAAC)
    preferences.py    the credit of MADPO
    leaderboard.py    rank handed-in runs on one page
    tracking.py    log reports to TensorBoard, trackio and other trackers

Public names are reached as `lab.*` like all others. The core never imports this package: registries name its entries,
which are imported at their first use.
"""
