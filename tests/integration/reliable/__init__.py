"""Parts of the reliable component on real databases."""
