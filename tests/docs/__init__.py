"""Tests of the pages: their commands run, their names exist, and their words are the code's."""
