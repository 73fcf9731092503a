"""What actions are granted: cores, devices and quotas, one manager per kind."""
