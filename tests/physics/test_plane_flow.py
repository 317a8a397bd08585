"""Flow on grids of one point along an axis: as much work as a plane takes, and the same results."""

import numpy as np
import pytest

from field_values import formulas, values
from flows import BOUSSINESQ, MHD, advance, relative_error, start
from slipstream.engine.errors import InputError

MODELS = {
    "hd": (("equation.rotation=0.3",), {}, (7, 4)),
    "mhd": (
        (*MHD, "equation.mean_field=0.3"),
        {"magnetic": ("cos(2*BB)", "sin(AA)", "sin(AA)*cos(BB)")},
        (13, 7),
    ),
    "boussinesq": (BOUSSINESQ, {"buoyancy": "cos(AA+BB)"}, (10, 7)),
}


# Rotation in the plane, and stratification across it, drive the normal component.
LEAVE_THE_PLANE = (("hd", 1), ("boussinesq", 2))


def _fields(axis, has_normal, others):
    """Return formulas of a flow that does not depend on an axis (0 is x)."""
    a, b = ("xyz"[own] for own in range(3) if own != axis)
    third = "sin(AA) + 0.4*cos(BB - AA)" if has_normal else "0"
    own = {"velocity": ("cos(BB)", "sin(AA + 0.3)", third), **others}
    result = {}
    for name, texts in own.items():
        texts = [t.replace("AA", a).replace("BB", b) for t in np.atleast_1d(texts)]
        if len(texts) == 3:
            in_plane, normal = texts[:2], texts[2] if has_normal else "0"
            texts = [*in_plane[:axis], normal, *in_plane[axis:]]
        result[name] = texts[0] if len(texts) == 1 else texts
    return result


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("axis", [2, 1])
@pytest.mark.parametrize("name", MODELS)
def test_plane_flow_is_that_of_a_thick_box_in_fewer_transforms(name, axis, device):
    settings, others, transforms = MODELS[name]
    for plane, count in zip(("2D3C", "2D2C"), transforms, strict=True):
        if plane == "2D2C" and (name, axis) in LEAVE_THE_PLANE:
            continue
        fields = formulas(**_fields(axis, plane == "2D3C", others))
        points = [16, 16, 16]
        results = {}
        for thickness in (1, 4):
            points[axis] = thickness
            given = f"numerics.plane={plane}" if thickness == 1 else "numerics.plane=2D3C"
            box = (f"grid.points={points}", "time.integrator=rk2")
            one = start(device, *settings, *fields, *box, given)
            results[thickness] = values(advance(one, 5)), one.diagnostics()
            if thickness == 1:
                assert one.problem.model.transforms == count
        thin, thick = results[1], results[4]
        for field, own in thin[0].items():
            if not field.startswith(("vorticity", "current_density")):
                other = np.take(thick[0][field], [0], 2 - axis)
                assert np.abs(own - other).max() <= 1e-13, field
        assert thin[1]["enstrophy"] == pytest.approx(thick[1]["enstrophy"], rel=1e-12)


def test_component_out_of_a_plane_of_two_is_refused(device):
    plane = ("grid.points=[16, 16, 1]", "numerics.plane=2D2C")
    with pytest.raises(InputError, match="but velocity_z is not 0; accepted: fields in the plane"):
        start(device, *plane, "initial.flow=abc").step_size()
    abc = ("forcing.kind=abc",)
    with pytest.raises(InputError, match="a force along velocity_z is not 0"):
        start(device, *plane, *abc)
    with pytest.raises(InputError, match="but the equations drive velocity_z; accepted: a model"):
        start(device, *plane, *BOUSSINESQ)
    with pytest.raises(InputError, match="one point along one axis"):
        start(device, "numerics.plane=2D2C")


def test_resolution_of_a_plane_is_that_of_two_dimensions(device):
    viscosity, wave = 0.01, 3
    simulation = start(
        device,
        "grid.points=[32, 32, 1]",
        f"equation.viscosity={viscosity}",
        *formulas(velocity=(f"cos({wave}*y)", "0", "0")),
    )
    # Half the mean square of the vorticity's gradient is k^4 / 4.
    chi = 2 * viscosity * wave**4 / 4
    expected = simulation.flow.wavenumbers.largest * (viscosity**3 / chi) ** (1 / 6)
    assert simulation.diagnostics()["kmax_eta"] == pytest.approx(expected, rel=1e-12)
    assert "two dimensions" in simulation.labels()["kmax_eta"]


def test_random_force_and_flow_are_in_the_plane(device):
    random = "forcing={ kind = 'random', shells = [2, 3], amplitude = 0.5 }"
    both = [
        start(device, "grid.points=[16, 16, 1]", random, f"numerics.plane={plane}")
        for plane in ("2D3C", "2D2C")
    ]
    first, second = (values(advance(one, 5)) for one in both)
    assert not second["velocity_z"].any()
    assert relative_error(second["velocity_x"], first["velocity_x"]) <= 1e-13
