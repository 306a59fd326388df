"""Compare runs at equal budgets, with intervals that show how certain the comparison is.

The runs were made side by side for the comparison, or elsewhere. Leaves out: pictures (`widgets`) and the tables of a
single run (`runs`).
"""
