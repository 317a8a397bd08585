"""Models that are lowered once for all processes."""

import pytest
import sympy
from sympy.core.cache import clear_cache

from slipstream.equations import lowering as kept_lowering
from slipstream.equations import models
from slipstream.equations.code_generation import mode_header, product_header
from slipstream.equations.fewest_transforms import EVERY_AXIS_VARIES
from slipstream.equations.lowering import lower, lower_once


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, in which every model is worth a file."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(cache))
    monkeypatch.setattr(kept_lowering, "_WORTH_KEEPING", -1.0)
    return cache


def model_of(viscosity):
    return models.find("hd")(viscosity=viscosity)


SYMBOL = sympy.Symbol("viscosity", real=True)


def text_of(lowered):
    return mode_header(lowered) + product_header(lowered)


def refuse(model, flat):
    raise AssertionError("lowered again")


def test_a_model_is_lowered_once_and_loaded_as_it_was(folder, monkeypatch):
    model = model_of(SYMBOL)
    lower_once(model, EVERY_AXIS_VARIES)
    assert [path.suffix for path in folder.iterdir() if path.name != "pruned"] == [".model"]
    monkeypatch.setattr(kept_lowering, "lower", refuse)
    clear_cache()  # expressions then share other parts than before
    loaded = lower_once(model_of(SYMBOL), EVERY_AXIS_VARIES)
    wanted = lower(model, EVERY_AXIS_VARIES)
    assert text_of(loaded) == text_of(wanted)
    for name in vars(wanted).keys() - {"rates", "plane_vectors"}:
        assert getattr(loaded, name) == getattr(wanted, name), name
    assert [form.terms for form in loaded.rates] == [form.terms for form in wanted.rates]
    with pytest.raises(AssertionError, match="lowered again"):
        lower_once(model_of(sympy.S.Zero), EVERY_AXIS_VARIES)


@pytest.mark.parametrize("left", [0, 100])
def test_a_damaged_file_is_a_miss(folder, left):
    lower_once(model_of(SYMBOL), EVERY_AXIS_VARIES)
    (path,) = folder.glob("*.model")
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    assert text_of(lower_once(model_of(SYMBOL), EVERY_AXIS_VARIES))
    assert path.read_bytes() == whole


def test_other_code_lowers_again(folder, monkeypatch):
    lower_once(model_of(SYMBOL), EVERY_AXIS_VARIES)
    monkeypatch.setattr(kept_lowering, "_code", lambda: b"other")
    lower_once(model_of(SYMBOL), EVERY_AXIS_VARIES)
    assert len(list(folder.glob("*.model"))) == 2


def test_nothing_is_kept_where_nothing_can_be(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for name in ("SLIPSTREAM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert text_of(lower_once(model_of(SYMBOL), EVERY_AXIS_VARIES))
