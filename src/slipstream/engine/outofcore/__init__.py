"""Out of core: arrays on the host that pass through devices tile by tile.

A tile goes to a slot of a device, is worked on there, and leaves (`tile_slots`); copies cross the
bus in one of several ways (`host_device_copy`). `memory_budget` finds how few tiles fit. What is
done to a tile, and where it comes from and goes to, is up to `fft`.
"""
