"""What errors of drivers mean."""
