"""Trace → view model: every number that a page, picture, export or lesson shows is computed here, and only here."""
