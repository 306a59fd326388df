"""What few people need, beside the core: other trainers, and your own programs.

    tinker/       back end whose weights are behind a Tinker server
    verl/         hand a run over to verl: `verl.export`
    programs/     your own programs as episodes, behind a gateway that speaks OpenAI's interface: `programs.play`

`from mas_lab.contrib import programs, tinker, verl` has what these rooms offer. The core never imports this package.
"""
