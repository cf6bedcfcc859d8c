"""The player: one animated view of a play, in the app and in a file of its own."""
