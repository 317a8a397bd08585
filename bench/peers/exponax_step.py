"""Exponax: a step of the three-dimensional Navier-Stokes equations, ETDRK4, in double precision.

    pip install exponax==0.2.0 && python exponax_step.py --n 64

Four evaluations of the nonlinear term, 2/3 rule, by `NavierStokesVelocity`. The state stays in
Fourier space between steps, which saves two transforms per step.
"""

import importlib.metadata
import os

# XLA would start a thread for every core of the machine.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import exponax
import jax
import jax.numpy as jnp
from served import arguments, serve

jax.config.update("jax_enable_x64", True)
options = arguments(__doc__, n=64)
n = options.n
stepper = exponax.stepper.NavierStokesVelocity(3, 2 * jnp.pi, n, 1e-3, diffusivity=1e-2, order=4)
x = jnp.arange(n) * 2 * jnp.pi / n
x, y, z = jnp.meshgrid(x, x, x, indexing="ij")
flow = jnp.stack(
    [jnp.sin(x) * jnp.cos(y) * jnp.cos(z), -jnp.cos(x) * jnp.sin(y) * jnp.cos(z), 0 * x]
)
state = exponax.fft(flow, num_spatial_dims=3)
advance = jax.jit(lambda modes: stepper.step_fourier(modes))


def step() -> None:
    """Advance by one step."""
    global state
    state = advance(state).block_until_ready()


versions = f"{importlib.metadata.version('exponax')} (JAX {jax.__version__})"
serve(options, step, {"peer": "exponax", "version": versions})
