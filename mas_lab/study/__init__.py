"""Runs side by side: within what budget, and how sure one can be.

Leaves out: pictures (`widgets`) and a single run's tables (`runs`).
"""
