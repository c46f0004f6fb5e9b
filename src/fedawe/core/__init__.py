"""The modules that all other packages use: errors, named random numbers, files, descriptions, metrics, colours."""
