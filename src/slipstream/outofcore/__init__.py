"""Out of core: arrays on the host that pass through devices tile by tile.

A pass over an array is cut into tiles (`tiles`). Each goes to a slot of a device, is worked on
there, and leaves (`tile_slots`); copies cross the bus in one of several ways
(`host_device_copy`). Where tiles come from and go to are stores (`tile_stores`): arrays, or what
ranks exchange. What is done to a tile, transforms for one, is given by those above.
"""
