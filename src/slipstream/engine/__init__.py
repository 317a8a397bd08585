"""Ranks, boxes, devices, kernels, step graphs, exchanges and transforms, without any physics."""
