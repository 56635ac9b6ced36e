"""Devices: how one kind of device holds a core's memory, compiles the trunk, tunes and captures programs.

`device.py` is what preparation and export ask of one; each kind has a folder. Only preparation and export come here,
and the bootstrap that chooses.
"""
