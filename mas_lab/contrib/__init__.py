"""What few people need, beside the core: other trainers, programs, shared teams and foreign runs.

    tinker/       back end whose weights are behind a Tinker server
    verl/         hand a run over to verl, or pack it into one zip
    programs/     your own programs as episodes, behind a gateway that speaks OpenAI's interface
    teams/        save a team as a folder to share, and load one
    foreign/      read rollouts of other trainers, and check runs that somebody else made, in a child process
    leaderboard.py    rank handed-in runs on one page
    tracking.py    log reports to TensorBoard, trackio and other trackers

Public names are reached as `lab.*` like all others, and imported at their first use. The core never imports this
package.
"""
