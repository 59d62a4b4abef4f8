"""One file for each bug that was found: it fails without its fix."""
