"""Users' models in a file, and their settings."""


def own_models(text, folder):
    """Return a function of a name, and of parameters as TOML, that returns settings."""
    path = folder / "own.py"
    path.write_text(text)

    def settings(name, *parameters):
        # The case of these tests has a viscosity, which other equations do not have.
        table = ", ".join([f"model = '{path}:{name}'", *parameters])
        return [f"equation={{ {table} }}"]

    return settings
