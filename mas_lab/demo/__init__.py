"""Train the teams of `make demo` side by side and show them on one page.

The first notebook goes through the settings of the first training one by one (`trials`). This package leaves out the
recipes.
"""
