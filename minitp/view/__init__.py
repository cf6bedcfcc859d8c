"""trace → view model: every number that a page, a picture, an export or a lesson shows is computed here."""
