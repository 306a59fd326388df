"""What few people need, beside the core: other trainers, and your own programs.

    tinker/       back end whose weights are behind a Tinker server
    verl/         hand a run over to verl, or pack it into one zip
    programs/     your own programs as episodes, behind a gateway that speaks OpenAI's interface

Public names are reached as `lab.*` like all others, and imported at their first use. The core never imports this
package.
"""
