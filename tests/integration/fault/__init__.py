"""The fault matrix: each row that real processes can show is a test named by its number."""
