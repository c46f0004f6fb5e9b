"""Pages, words, and figures for papers, made from what an experiment recorded."""
