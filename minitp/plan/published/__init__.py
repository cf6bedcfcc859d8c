"""How other tools and papers count, under their own names, to be told apart from what minitp plans.

Nothing here is a formula of minitp's own: each module says whose it is and what it leaves out. `minitp plan verify`
holds them to the numbers that were printed.
"""
