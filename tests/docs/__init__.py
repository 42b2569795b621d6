"""What the pages say is so: their commands run, their names exist, their words are the code's."""
