"""A stream's or an archive's changes as one page that people can look at."""
