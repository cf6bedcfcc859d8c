"""From a trace to what a page shows: every number that a picture, a table, an export or a lesson shows is made here.

Pages and pictures draw; they compute nothing. NumPy only.
"""
