"""How the tables came to be, one file for each version; the leader runs what is missing."""
