"""A trace's file with something wrong in it: what a stranger may send."""


def put(path, value):
    """Puts `value` where `path` leads: "events/rank/0"."""
    def change(plain):
        *folders, last = path.split("/")
        for folder in folders:
            plain = plain[int(folder) if isinstance(plain, list) else folder]
        plain[int(last) if isinstance(plain, list) else last] = value
    return change
