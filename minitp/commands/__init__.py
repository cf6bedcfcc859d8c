"""What the verbs of the command line do, on every rank; `minitp.cli` only reads their options."""
