"""What few people need, beside the core: other trainers, programs, foreign runs, younger methods and more tasks.

    tinker/       back end whose weights are behind a Tinker server
    verl/         hand a run over to verl: `verl.export`
    programs/     your own programs as episodes, behind a gateway that speaks OpenAI's interface: `programs.play`
    teams/        save a team as a folder to share, and load one
    tasks/        tasks with tools, and envs of PettingZoo, TextArena and reasoning-gym
    foreign/      read rollouts of other trainers, and check runs that somebody else made, in a child process
    critics.py    credits that learn a value (IAC, MAAC)
    preferences.py    the credit of MADPO
    leaderboard.py    rank handed-in runs on one page
    tracking.py    log reports to TensorBoard, trackio and other trackers

`from mas_lab.contrib import programs, tinker, verl` has what these three rooms offer; names of the others are reached
as `lab.*`. The core never imports this package: registries name its entries, which are imported at their first use.
"""
