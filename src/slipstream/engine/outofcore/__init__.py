"""Out of core: arrays on the host that pass through devices tile by tile.

A tile is copied to a slot of a device, processed and copied back (`tile_slots`); copies cross the
bus in one of several ways (`host_device_copy`). `memory_budget` finds the smallest number of tiles.
The work on a tile, its source and its target are up to `fft`.
"""
