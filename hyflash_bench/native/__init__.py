"""What C code of this package has in common: how it is built and opened, and products of a few rows."""
