"""What every service needs: settings, clock, logs."""
