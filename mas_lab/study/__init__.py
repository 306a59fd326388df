"""Compare: runs that are made side by side for it, or were made elsewhere, at equal budgets; and how sure one can be.

Leaves out: pictures (`widgets`) and a single run's tables (`runs`).
"""
