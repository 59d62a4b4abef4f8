"""The primary of a broker group in its process, with followers that copy into memory."""
