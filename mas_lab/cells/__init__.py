"""The four cells, and what each is told: plans, credits, losses.

Leaves out: who plays (the nouns) and how they are composed (`recipes`, `train`).
"""
