"""What everything else stands on: errors, random numbers addressed by name, files, colours."""
