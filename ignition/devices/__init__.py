"""Devices: how one kind of device captures programs and builds modules. Only preparation and export come here."""
