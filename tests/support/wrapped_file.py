"""An open file some of whose methods a test replaces."""


class WrappedFile:
    """Passes on whatever a derived class does not define."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)
