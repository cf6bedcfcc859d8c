"""What the app's pages share: choosing a run, the parts of a page, values that stay."""
