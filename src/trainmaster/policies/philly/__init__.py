"""Philly (ATC'19): fair queues and a search for locality that relaxes."""
