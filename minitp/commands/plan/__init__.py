"""What the verbs of `minitp plan` do: they ask `minitp.plan` and print its answers."""
