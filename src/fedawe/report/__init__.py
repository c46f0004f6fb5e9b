"""Make pages, sentences, and figures for papers from the records of experiments."""
